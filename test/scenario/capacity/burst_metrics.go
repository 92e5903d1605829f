package capacity

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const createVolume = "CreateVolume"

// figures are counts and seconds of the drivers' operations, of all nodes together, by operation and how it ended.
type figures map[[2]string]figure

type figure struct{ count, seconds float64 }

// minus is what has come since other was taken.
func (f figures) minus(other figures) figures {
	since := figures{}
	for key, is := range f {
		since[key] = figure{is.count - other[key].count, is.seconds - other[key].seconds}
	}
	return since
}

// failed counts the operations that did not end well.
func (f figures) failed(operation string) (n float64) {
	for key, is := range f {
		if key[0] == operation && key[1] != "OK" {
			n += is.count
		}
	}
	return n
}

// mean is the mean duration of the operations that ended well, and their number.
func (f figures) mean(operation string) (time.Duration, float64) {
	is := f[[2]string{operation, "OK"}]
	if operation == strings.ToLower(operation) { // a command, not a call
		is = f[[2]string{operation, "0"}]
	}
	if is.count == 0 {
		return 0, 0
	}
	return time.Duration(is.seconds / is.count * float64(time.Second)), is.count
}

// driverFigures reads the metrics of all drivers, again where one does not answer: a node may be busy.
func driverFigures(ctx context.Context, env *scenario.Environment) (all figures, err error) {
	err = cluster.Eventually(ctx, func() error {
		all, err = driverFiguresOnce(ctx, env)
		return err
	})
	return all, err
}

func driverFiguresOnce(ctx context.Context, env *scenario.Environment) (figures, error) {
	pods, err := env.NodePods(ctx)
	if err != nil {
		return nil, err
	}
	all := figures{}
	for _, pod := range pods {
		text, err := env.DriverPage(ctx, pod.Name, "/metrics")
		if err != nil {
			return nil, err
		}
		if err := all.add(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// add adds a driver's metrics.
func (f figures) add(text string) error {
	return scenario.EachSample(text, func(name, labels string, value float64) {
		var key [2]string
		switch {
		case strings.HasPrefix(name, "csi_plugin_operations_seconds_"):
			key = [2]string{path.Base(scenario.MetricLabel(labels, "method_name")), scenario.MetricLabel(labels, "grpc_status_code")}
		case strings.HasPrefix(name, "nodelvm_lvm_command_duration_seconds_"):
			key = [2]string{scenario.MetricLabel(labels, "command"), scenario.MetricLabel(labels, "exit_code")}
		default:
			return
		}
		is := f[key]
		switch {
		case strings.HasSuffix(name, "_count"):
			is.count += value
		case strings.HasSuffix(name, "_sum"):
			is.seconds += value
		}
		f[key] = is
	})
}

// stage is one NodeStageVolume of a new volume: how long until mkfs began, and from then on.
type stage struct{ before, after time.Duration }

// driverStages reads the drivers' logs since a moment.
func driverStages(ctx context.Context, env *scenario.Environment, since metav1.Time) (all []stage, err error) {
	pods, err := env.NodePods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		log, err := env.Client.CoreV1().Pods(cluster.DriverNamespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "nodelvm", SinceTime: &since}).Stream(ctx)
		if err != nil {
			return nil, err
		}
		found, err := readStages(log)
		if err := errors.Join(err, log.Close()); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func readStages(log io.Reader) (all []stage, err error) {
	made := map[string]time.Time{} // volume -> when its file system was begun
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct {
			Time              time.Time
			Msg, Call, Volume string
			Took              float64 // seconds
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // not a line of the log's own
		}
		if line.Msg == "creating a file system" {
			made[line.Volume] = line.Time
		}
		if begun := made[line.Volume]; line.Call == "NodeStageVolume" && !begun.IsZero() {
			after := line.Time.Sub(begun)
			all = append(all, stage{before: time.Duration(line.Took*float64(time.Second)) - after, after: after})
		}
	}
	return all, lines.Err()
}
