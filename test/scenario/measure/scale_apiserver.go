package measure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// apiServer are counters of the API server since its start, at one moment.
type apiServer struct {
	cpu float64 // seconds of processor time
	// By resource, of those that the driver's pods watch. Other clients watch some of them, too.
	watches map[string]watched
}

// watched is what the API server has sent on the watches of one resource.
type watched struct{ open, events, bytes float64 }

// watchedResources are those that the driver's pods watch.
var watchedResources = []string{
	"csistoragecapacities", "persistentvolumeclaims", "persistentvolumes", "storageclasses",
	"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots",
}

func apiServerOf(ctx context.Context, env *scenario.Environment) (*apiServer, error) {
	text, err := env.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return readAPIServer(string(text))
}

func readAPIServer(metrics string) (*apiServer, error) {
	is := &apiServer{watches: map[string]watched{}}
	if err := scenario.EachSample(metrics, is.add); err != nil {
		return nil, err
	}
	if is.cpu == 0 {
		return nil, fmt.Errorf("the API server's metrics lack its processor time: %.200s", metrics)
	}
	return is, nil
}

// add adds one sample of the metrics.
func (is *apiServer) add(name, labels string, value float64) {
	resource := scenario.MetricLabel(labels, "resource")
	watches := is.watches[resource]
	switch {
	case name == "process_cpu_seconds_total":
		is.cpu = value
		return
	case !slices.Contains(watchedResources, resource):
		return
	case name == "apiserver_watch_events_total":
		watches.events += value
	case name == "apiserver_watch_events_sizes_sum":
		watches.bytes += value
	case name == "apiserver_longrunning_requests" && scenario.MetricLabel(labels, "verb") == "WATCH":
		watches.open += value
	}
	is.watches[resource] = watches
}

// showAPIServer prints what the API server did since an earlier moment, times a factor.
func showAPIServer(ctx context.Context, env *scenario.Environment, before *apiServer, unit string, factor float64) error {
	now, err := apiServerOf(ctx, env)
	if err != nil {
		return err
	}
	env.Reporter.Note("the API server used %.3f s of processor time %s", (now.cpu-before.cpu)*factor, unit)
	env.Reporter.Table([]string{"RESOURCE", "OPEN WATCHES", "EVENTS ON THEM " + strings.ToUpper(unit), "KIB"}, now.rowsSince(before, factor))
	return nil
}

// rowsSince are the rows of a table.
func (is *apiServer) rowsSince(before *apiServer, factor float64) (rows [][]string) {
	var all watched
	for _, resource := range slices.Sorted(maps.Keys(is.watches)) {
		now, earlier := is.watches[resource], before.watches[resource]
		since := watched{open: now.open, events: (now.events - earlier.events) * factor, bytes: (now.bytes - earlier.bytes) * factor}
		all = watched{open: all.open + since.open, events: all.events + since.events, bytes: all.bytes + since.bytes}
		rows = append(rows, since.row(resource))
	}
	return append(rows, all.row("all"))
}

func (w watched) row(resource string) []string {
	return []string{resource, fmt.Sprintf("%.0f", w.open), fmt.Sprintf("%.2f", w.events), fmt.Sprintf("%.2f", w.bytes/1024)}
}
