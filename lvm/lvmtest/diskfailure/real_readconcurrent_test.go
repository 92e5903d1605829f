//go:build reallvm

package diskfailure

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestReadWhileVolumesChange_RealLVM: whatever volumes appear and disappear during a read, the group has its disks.
func TestReadWhileVolumesChange_RealLVM(t *testing.T) {
	reallvm.NewFixture(t)
	var ended atomic.Bool
	var readers sync.WaitGroup
	var readings atomic.Int64
	var disks [2]ondisk.Disks
	for i := range 4 {
		readers.Go(func() {
			for !ended.Load() {
				state, err := disks[i%2].Read(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				readings.Add(1)
				if g, there := reallvm.FindGroup(state, reallvm.Group); !there || !reallvm.IsWhole(g) || g.Problem != "" {
					t.Errorf("the group exists: %v, as %+v", there, g)
					return
				}
			}
		})
	}
	for i, end := 0, time.Now().Add(8*time.Second); time.Now().Before(end); i++ {
		name := fmt.Sprint("amid-", i%3)
		reallvm.Admin(t, "lvcreate", "-y", "-Wn", "-Zn", "-L", "4m", "-n", name, reallvm.Group)
		reallvm.Admin(t, "lvremove", "-y", reallvm.Group+"/"+name)
	}
	ended.Store(true)
	readers.Wait()
	t.Logf("%d reads", readings.Load())
}
