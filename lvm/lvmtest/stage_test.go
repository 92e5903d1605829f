package lvmtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// How long a command takes in these tests, in the time of the test's bubble: as on a slow node.
const (
	createTime = 200 * time.Millisecond
	changeTime = 140 * time.Millisecond
)

// timed is a runner whose commands take their time.
type timed struct{ runner }

func (r timed) Run(ctx context.Context, argv []string) ([]byte, error) {
	switch argv[0] {
	case "lvcreate":
		time.Sleep(createTime)
	case "fullreport":
	default:
		time.Sleep(changeTime)
	}
	return r.runner.Run(ctx, argv)
}

// startTimed starts a driver on a node with room for many volumes.
func startTimed(t testing.TB, settleAfter time.Duration) (*Node, *lvm.Host) {
	t.Helper()
	node := NewNode(Group{Name: "vg-test", Disks: []lvm.Bytes{10 * lvm.GiB}})
	h := lvm.NewHostOn(lvm.Config{Cluster: Cluster, SettleAfter: settleAfter, Freshness: -1},
		lvm.Machine{Runner: timed{runner{node, nil}}, Kernel: kernel{node}, Reader: reader{node}})
	must(t, h.Start(t.Context()))
	return node, h
}

// TestStageGoesFirst: whoever stages a new volume waits for the command in flight, not for the creates that wait for the
// group; one that stages a volume that is not active neither. The creates go on nonetheless.
func TestStageGoesFirst(t *testing.T) {
	for _, active := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			node, h := startTimed(t, time.Hour)
			b := bed(node)
			v, err := h.Create(t.Context(), b.spec("staged", 8*lvm.MiB))
			must(t, err)
			most := createTime + changeTime
			if !active {
				_, err := h.Activate(t.Context(), v.ID, v.UUID)
				must(t, err)
				b.Admin(t, "lvchange", "-an", "--", "vg-test/"+v.ID.LV)
			}
			var creates sync.WaitGroup
			for i := range 20 {
				creates.Go(func() {
					_, err := h.Create(context.Background(), b.spec(fmt.Sprintf("queued-%d", i), 8*lvm.MiB))
					if err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(createTime / 2)
			began := time.Now()
			_, err = h.Activate(t.Context(), v.ID, v.UUID)
			must(t, err)
			if took := time.Since(began); took > most {
				t.Errorf("with 20 creates in the queue, staging a volume (active: %v) took %s, want at most %s", active, took, most)
			}
			creates.Wait()
			must(t, h.Close(t.Context()))
		})
	}
}

// TestStagesStarveNobody: creates go on while volumes that are not active are staged without end.
func TestStagesStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, h := startTimed(t, time.Hour)
		b := bed(node)
		ended := make(chan struct{})
		var stages sync.WaitGroup
		for i := range 4 {
			v, err := h.Create(t.Context(), b.spec(fmt.Sprintf("restaged-%d", i), 8*lvm.MiB))
			must(t, err)
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
		_, err := h.Create(t.Context(), b.spec("patient", 8*lvm.MiB))
		must(t, err)
		if took, most := time.Since(began), 2*(createTime+changeTime); took > most {
			t.Errorf("while others are staged all the time, a create took %s, want at most %s", took, most)
		}
		close(ended)
		stages.Wait()
		must(t, h.Close(t.Context()))
	})
}

// TestStageWaitsInABurst: 60 pods with a new volume each. Each volume is staged a second after it was answered for, as the
// scheduler and the kubelet need it.
func TestStageWaitsInABurst(t *testing.T) {
	const pods = 60
	synctest.Test(t, func(t *testing.T) {
		node, h := startTimed(t, time.Second)
		b := bed(node)
		var waits []time.Duration
		var mu sync.Mutex
		var burst sync.WaitGroup
		began := time.Now()
		for i := range pods {
			burst.Go(func() {
				v, err := h.Create(context.Background(), b.spec(fmt.Sprintf("v%d", i), 8*lvm.MiB))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				asked := time.Now()
				if _, err = h.Activate(context.Background(), v.ID, v.UUID); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, time.Since(asked))
			})
		}
		burst.Wait()
		all := time.Since(began)
		must(t, h.Close(t.Context()))
		marks := 0
		for _, c := range node.Commands() {
			if strings.Contains(strings.Join(c.Args, " "), settling) {
				marks++
			}
		}
		slices.Sort(waits)
		t.Logf("of %d volumes, staging waited %s at the median and %s at most; the last one was staged after %s; %d commands marked volumes as ready",
			pods, waits[pods/2], waits[pods-1], all, marks)
		if median, most := waits[pods/2], createTime+changeTime; median > most {
			t.Errorf("in a burst of %d volumes, staging waited %s at the median, want at most %s", pods, median, most)
		}
	})
}
