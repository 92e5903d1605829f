package operations

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// How long a command takes in these tests, in the test bubble's time: as on a slow node.
const (
	createTime = 200 * time.Millisecond
	changeTime = 140 * time.Millisecond
)

// timed is a runner whose commands take time.
type timed struct{ lvm.Runner }

func (r timed) Run(ctx context.Context, argv []string) ([]byte, error) {
	switch argv[0] {
	case "lvcreate":
		time.Sleep(createTime)
	case "fullreport":
	default:
		time.Sleep(changeTime)
	}
	return r.Runner.Run(ctx, argv)
}

// startTimed starts a driver on a node with capacity for many volumes.
func startTimed(t testing.TB, settleAfter time.Duration) (*lvmtest.Node, *hosttest.Driver) {
	t.Helper()
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{10 * lvm.GiB}})
	return node, hosttest.StartOn(t, node, lvm.Config{ReadyDelay: settleAfter, CacheTTL: -1}, lvm.Machine{Runner: timed{node.Runner()}})
}

// TestStagePrecedesQueuedCreates: staging a new volume waits for the command in flight, not for the creates that wait for the group;
// neither does staging an inactive volume. The creates continue nonetheless.
func TestStagePrecedesQueuedCreates(t *testing.T) {
	for _, active := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			node, h := startTimed(t, time.Hour)
			b := hosttest.OnFake(node)
			v := h.MustCreate(t, b.Spec("staged", 8*lvm.MiB))
			most := createTime + changeTime
			if !active {
				h.MustActivate(t, v)
				b.Admin(t, "lvchange", "-an", "--", "vg-test/"+v.ID.LV)
			}
			var creates sync.WaitGroup
			for i := range 20 {
				creates.Go(func() {
					_, err := h.Create(context.Background(), b.Spec(fmt.Sprintf("queued-%d", i), 8*lvm.MiB))
					if err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(createTime / 2)
			began := time.Now()
			h.MustActivate(t, v)
			if took := time.Since(began); took > most {
				t.Errorf("with 20 creates in the queue, staging a volume (active: %v) took %s, want at most %s", active, took, most)
			}
			creates.Wait()
			hosttest.Must(t, h.Close(t.Context()))
		})
	}
}

// TestStagesDoNotStarveCreates: creates continue while inactive volumes are staged all the time.
func TestStagesDoNotStarveCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, h := startTimed(t, time.Hour)
		b := hosttest.OnFake(node)
		ended := make(chan struct{})
		var stages sync.WaitGroup
		for i := range 4 {
			v := h.MustCreate(t, b.Spec(fmt.Sprintf("restaged-%d", i), 8*lvm.MiB))
			stages.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
					}
					_, err := h.Activate(t.Context(), v.ID, v.UUID)
					if err != nil {
						t.Error(err)
						return
					}
					b.Admin(t, "lvchange", "-an", "--", "vg-test/"+v.ID.LV)
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		h.MustCreate(t, b.Spec("patient", 8*lvm.MiB))
		if took, most := time.Since(began), 2*(createTime+changeTime); took > most {
			t.Errorf("while others are staged all the time, a create took %s, want at most %s", took, most)
		}
		close(ended)
		stages.Wait()
		hosttest.Must(t, h.Close(t.Context()))
	})
}

// burst describes 60 pods with a new volume each.
type burst struct {
	atOnce int           // creates in flight
	delay  time.Duration // from a volume's creation to its stage, which the scheduler and the kubelet need
}

const pods = 60

// run runs a burst. It returns when each volume was created, and how long its stage waited, in order.
func (c burst) run(t *testing.T, b hosttest.Fixture, h *hosttest.Driver) (answered, waits []time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	next := make(chan int)
	for range c.atOnce {
		all.Go(func() {
			for i := range next {
				v, err := h.Create(context.Background(), b.Spec(fmt.Sprintf("v%d", i), 8*lvm.MiB))
				if err != nil {
					t.Error(err)
				}
				made := time.Since(began)
				all.Go(func() {
					time.Sleep(c.delay)
					asked := time.Now()
					if _, err := h.Activate(context.Background(), v.ID, v.UUID); err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					answered, waits = append(answered, made), append(waits, time.Since(asked))
				})
			}
		})
	}
	for i := range pods {
		next <- i
	}
	close(next)
	all.Wait()
	slices.Sort(answered)
	slices.Sort(waits)
	return answered, waits
}

// fewest is the minimal number of commits that tag each volume as ready after its creation, before its stage has waited longer
// than a command takes: each commit as late as possible, for all volumes created by then.
func (c burst) fewest(answered []time.Duration) int {
	commits, last := 0, time.Duration(-1)
	for _, at := range answered {
		if at > last {
			commits, last = commits+1, at+c.delay+createTime
		}
	}
	return commits
}

// TestStageDoesNotWaitInBurst: in a burst no stage waits for the queue of creates, and no commit tags volumes as ready without a
// stage, until the queue is empty.
func TestStageDoesNotWaitInBurst(t *testing.T) {
	for _, c := range []burst{{pods, time.Second}, {pods, 3 * time.Second}, {8, time.Second}, {8, 3 * time.Second}, {8, time.Minute}, {pods, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			node, h := startTimed(t, time.Second)
			answered, waits := c.run(t, hosttest.OnFake(node), h)
			hosttest.Must(t, h.Close(t.Context()))
			commits := 0
			for _, command := range node.Commands() {
				if hosttest.IsReadyCommit(command) {
					commits++
				}
			}
			median, most, fewest := waits[pods/2], waits[pods-1], c.fewest(answered)
			t.Logf("%d creates under way, each volume staged %s after its answer: staging waited %s at the median and %s at most; the last create took until %s; %d ready commits, at least %d are needed",
				c.atOnce, c.delay, median, most, answered[pods-1], commits, fewest)
			if limit := createTime + changeTime; most > limit {
				t.Errorf("staging waited up to %s, want at most %s", most, limit)
			}
			if commits > fewest {
				t.Errorf("%d ready commits, want %d", commits, fewest)
			}
		})
	}
}
