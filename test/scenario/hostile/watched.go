package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// killer ends drivers with SIGKILL, and what runs in their containers with them.
type killer struct {
	random *rand.Rand
	count  map[string]int       // by node
	last   map[string]time.Time // the same
	err    error                // why the last attempt failed
}

// killAgain is the time after which the kubelet has forgotten a kill. It restarts a container whose end it remembers after a pause, which doubles each time.
const killAgain = 11 * time.Minute

// work kills a driver once in one to two minutes until ctx ends, if there is one that may be killed.
func (k *killer) work(ctx context.Context, env *scenario.Environment) {
	for {
		kubeclient.Sleep(ctx, time.Minute+time.Duration(k.random.Int64N(int64(time.Minute))))
		if ctx.Err() != nil {
			return
		}
		nodes := slices.DeleteFunc(env.Lab.NodeNames(), func(node string) bool { return time.Since(k.last[node]) < killAgain })
		if len(nodes) == 0 {
			continue
		}
		node := choose(k.random, nodes)
		if _, err := env.RunOnNode(ctx, node, "sh", "-ec", "kill -KILL $(pgrep -ox nodelvm)"); err != nil { // it has just ended otherwise
			k.err = fmt.Errorf("kill the driver on %s: %w", node, err)
			continue
		}
		k.last[node] = time.Now()
		k.count[node]++
		env.Reporter.Note("the driver on %s is killed", node)
	}
}

// hasKilled fails unless a driver was killed.
func (k *killer) hasKilled() error {
	if len(k.count) == 0 {
		return errors.Join(errors.New("no driver was killed"), k.err)
	}
	return nil
}

// memory reads how much memory each container of the driver's pods has had at most.
type memory struct {
	peaks map[string]map[string]int // KiB by process and node
	reads map[string]int            // of the driver, by node
	err   error                     // the last one
}

const betweenReads = 5 * time.Second

var processes = []string{"nodelvm", "csi-provisioner", "csi-snapshotter"}

func newMemory() *memory {
	m := &memory{peaks: map[string]map[string]int{}, reads: map[string]int{}}
	for _, process := range processes {
		m.peaks[process] = map[string]int{}
	}
	return m
}

// work reads until ctx ends. A process that has been killed has no memory for a moment.
func (m *memory) work(ctx context.Context, env *scenario.Environment) {
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, betweenReads) {
		for _, node := range env.Lab.NodeNames() {
			for _, process := range processes {
				kib, err := env.PeakMemory(ctx, node, process)
				if err != nil {
					m.err = err
					continue
				}
				m.peaks[process][node] = max(m.peaks[process][node], kib)
				if process == processes[0] {
					m.reads[node]++
				}
			}
		}
	}
}

// check fails if the driver of a node had too much memory, or was not watched for most of the time.
func (m *memory) check(nodes []string, length time.Duration) (failed error) {
	for _, node := range nodes {
		if wants := int(length / (6 * betweenReads)); m.reads[node] < wants {
			failed = errors.Join(failed, fmt.Errorf("%s: the memory was read %d times only, want %d (%w)", node, m.reads[node], wants, m.err))
		}
		if kib := m.peaks[processes[0]][node]; kib > mostMemory {
			failed = errors.Join(failed, fmt.Errorf("%s: %.1f MiB", node, float64(kib)/1024))
		}
	}
	return failed
}
