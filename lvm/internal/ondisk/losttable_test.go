package ondisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestMapperLosesItsDisk: a device-mapper device gets a table without a disk, as a failed disk in tests or a multipath device with no path
// left. Its group is absent; the reading is incomplete only if reads fail. With its disk it has the group again.
func TestMapperLosesItsDisk(t *testing.T) {
	for what, fails := range map[string]bool{"reads fail": true, "reads succeed": false} {
		t.Run(what, func(t *testing.T) {
			s := newStack(t)
			s.Mapper("dm-5", "x", "sda1")
			s.forge("dm-5")
			node, slave := filepath.Join(s.Dev, "dm-5"), filepath.Join(s.Sys, "class/block/dm-5/slaves/sda1")
			running := s.reader()
			read := func(d *Disks, groups int) lvm.State {
				t.Helper()
				state, err := d.Read(t.Context())
				fixture.Must(t, err)
				if len(state.Groups) != groups || len(state.Unresponsive) > 0 {
					t.Errorf("%d groups, want %d; unresponsive are %q", len(state.Groups), groups, state.Unresponsive)
				}
				return state
			}
			read(running, 1)
			fixture.Must(t, os.Remove(slave))
			if fails {
				fixture.Must(t, os.Rename(node, node+"-away"))
				fixture.Must(t, os.Mkdir(node, 0o755)) // EISDIR
			}
			for _, d := range []*Disks{running, s.reader()} {
				state := read(d, 0)
				if told := strings.Contains(fmt.Sprint(state.UnreadDevices), "dm-5 could not be read: "); told != fails {
					t.Errorf("unreadable are %q", state.UnreadDevices)
				}
				if slices.Contains(state.Devices, node) {
					t.Error("LVM may open the device")
				}
			}
			if fails {
				fixture.Must(t, errors.Join(os.Remove(node), os.Rename(node+"-away", node)))
			}
			s.Attribute(t, "dm-5", "slaves/sda1", "")
			if state := read(running, 1); len(state.UnreadDevices) > 0 {
				t.Errorf("the disk is back, and unreadable are %q", state.UnreadDevices)
			}
		})
	}
}
