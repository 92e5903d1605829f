package capacity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// usage is processor time of the nodes, by what used it.
type usage map[string]time.Duration

// What used it, beside sidecars and containerd.
const (
	usedByDriver = "the driver"
	usedByTools  = "lvm, mkfs and other children of the driver"
	usedByRest   = "the pods, the kernel's threads and the rest"
	usedByAPI    = "the API server, which is on no node"
)

// users are the names of processes, cut to 15 bytes by the kernel, and what they belong to.
var users = map[string]string{
	"csi-provisioner": "csi-provisioner", "csi-snapshotter": "csi-snapshotter", "csi-node-driver": "node-driver-registrar",
	"kubelet": "kubelet", "containerd": "containerd and runc", "containerd-shim": "containerd and runc", "runc": "containerd and runc",
}

// usageOf reads the processor time of all nodes since their start. A process includes its children that have ended.
func usageOf(ctx context.Context, env *scenario.Environment) (usage, error) {
	used := usage{}
	for _, node := range env.Lab.NodeNames() {
		text, err := env.RunOnNode(ctx, node, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true") // some processes end meanwhile
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if err := used.add(line); err != nil {
				return nil, fmt.Errorf("node %s: %w", node, err)
			}
		}
	}
	metrics, err := env.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return used, scenario.EachSample(string(metrics), func(name, _ string, seconds float64) {
		if name == "process_cpu_seconds_total" {
			used[usedByAPI] = time.Duration(seconds * float64(time.Second))
		}
	})
}

// tick is the unit of the times in /proc/PID/stat (proc(5)): USER_HZ.
const tick = time.Second / 100

// add adds a line of /proc/PID/stat.
func (u usage) add(line string) error {
	_, name, opened := strings.Cut(line, "(")
	end := strings.LastIndexByte(name, ')')
	if !opened || end < 0 {
		return fmt.Errorf("not a line of /proc/PID/stat: %q", line)
	}
	name, fields := name[:end], strings.Fields(name[end+1:]) // which begin with field 3
	if len(fields) < 15 {
		return fmt.Errorf("/proc/PID/stat has only %d fields: %q", len(fields)+2, line)
	}
	var times [4]time.Duration // utime, stime, and those of children that have ended
	var bad error
	for i, text := range fields[11:15] {
		n, err := strconv.ParseInt(text, 10, 64)
		times[i], bad = time.Duration(n)*tick, errors.Join(bad, err)
	}
	if self, children := times[0]+times[1], times[2]+times[3]; name == "nodelvm" {
		u[usedByDriver] += self
		u[usedByTools] += children
	} else if of, known := users[name]; known {
		u[of] += self + children
	} else {
		u[usedByRest] += self + children
	}
	return bad
}

// since returns what was used since an earlier reading. Processes that have ended since may leave less of the rest than there was.
func (u usage) since(before usage) usage {
	used := usage{}
	for what := range u {
		used[what] = max(0, u[what]-before[what])
	}
	return used
}

// rows are a table of what two bursts of so many pods used, the largest difference first.
func rows(without, with usage, pods int) (table [][]string) {
	more := func(what string) time.Duration { return with[what] - without[what] }
	for _, what := range slices.SortedFunc(maps.Keys(with), func(a, b string) int { return int(more(b) - more(a)) }) {
		table = append(table, []string{what, seconds(without[what]), seconds(with[what]), strconv.FormatInt((more(what) / time.Duration(pods)).Milliseconds(), 10)})
	}
	return table
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
