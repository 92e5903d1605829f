//go:build reallvm

package lvmtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// TestReadWhileVolumesChange_RealLVM: whatever volumes appear and disappear during a read, the group has its disks.
func TestReadWhileVolumesChange_RealLVM(t *testing.T) {
	realFixture(t)
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
				if g, there := groupNamed(state, realGroup); !there || !isWhole(g) || g.Problem != "" {
					t.Errorf("the group exists: %v, as %+v", there, g)
					return
				}
			}
		})
	}
	for i, end := 0, time.Now().Add(8*time.Second); time.Now().Before(end); i++ {
		name := fmt.Sprint("amid-", i%3)
		admin(t, "lvcreate", "-y", "-Wn", "-Zn", "-L", "4m", "-n", name, realGroup)
		admin(t, "lvremove", "-y", realGroup+"/"+name)
	}
	ended.Store(true)
	readers.Wait()
	t.Logf("%d reads", readings.Load())
}
