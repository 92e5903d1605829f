package ondisk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestCopyOfARecordedDisk: a disk and its copy, which are there when the driver first runs, or of which the copy comes later, to a node without another
// storage driver. The driver believes neither alone, whatever order the kernel lists them in, and the record does not change with each reading.
func TestCopyOfARecordedDisk(t *testing.T) {
	for name, c := range map[string]struct {
		first  string   // the disk that is there before the other one; "": none
		others []string // storage drivers
	}{
		"both at first":                    {"", nil},
		"both at first, another driver":    {"", []string{"ebs.csi.aws.com"}},
		"the copy is listed first":         {"sda1", nil},
		"the copy is listed after the old": {"nvme2n1p1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newStack(t), recordOf(t, c.others...)
			s.mounts()
			s.attachForeign()
			if c.first != "" {
				s.forge(c.first)
				s.readOf(r)
			}
			s.forge("sda1")
			s.forge("nvme2n1p1")
			check := func(r *accepted.Record) {
				state := s.readOf(r)
				if len(state.Groups) != 1 || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || !strings.Contains(state.Groups[0].Problem, "several devices") || lvm.CheckWritable(state, state.Groups[0]) == nil {
					t.Errorf("%+v", state.Groups)
				}
			}
			check(r)
			before, err := os.Stat(r.File)
			fixture.Must(t, err)
			check(r)
			check(&accepted.Record{File: r.File, KubeletDir: r.KubeletDir, Driver: r.Driver, Log: r.Log}) // the next process
			if after, err := os.Stat(r.File); err != nil || !os.SameFile(before, after) || len(r.Entries()) != 2 {
				t.Errorf("the record was written again (%v), and has %+v", err, r.Entries())
			}
			s.write("nvme2n1p1", make([]byte, 4096))
			if state := s.readOf(r); len(state.Groups) != 1 || state.Groups[0].Problem != "" || !slices.Contains(state.Devices, filepath.Join(s.Dev, "sda1")) {
				t.Errorf("without the copy: %+v", state.Groups)
			}
		})
	}
}
