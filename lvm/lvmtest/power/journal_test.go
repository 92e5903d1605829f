//go:build reallvm

package power

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// promised is the journal's record of one volume or snapshot.
type promised struct {
	made, deleting, deleted bool
	size, asked             lvm.Bytes
	content                 string // "": unknown
}

// promises holds the records by name.
type promises map[string]*promised

// readPromises reads a journal, except for an incomplete last line.
func readPromises(journal string) promises {
	all := promises{}
	all.add(journal[:strings.LastIndexByte(journal, '\n')+1])
	return all
}

func (all promises) add(lines string) {
	for line := range strings.Lines(lines) {
		var sure, what, name, content string
		var size lvm.Bytes
		if n, _ := fmt.Sscan(line, &sure, &what, &name, &size, &content); n < 3 {
			continue // "works"
		}
		p := all[name]
		if p == nil {
			p = &promised{}
			all[name] = p
		}
		done := sure == "!"
		switch what {
		case "make":
			p.made, p.asked, p.content = done, size, content
		case "write":
			p.content = content
		case "extend":
			p.asked = size
		case "delete":
			p.deleting, p.deleted = true, done
		}
		if done && size > 0 {
			p.size = size
		}
	}
}

// checkNothingElse checks that the group has so many volumes besides the pool, that the pool has exactly their devices, and
// that none is suspended.
func checkNothingElse(t testing.TB, b hosttest.Fixture, want int) {
	t.Helper()
	var names []string
	for _, lv := range b.ReadGroup(t).LVs {
		if !lv.Hidden && lv.Name != lvm.DefaultPool {
			names = append(names, lv.Name)
		}
	}
	if len(names) != want {
		t.Errorf("the driver has %d volumes, and the group has %v", want, names)
	}
	if lost := reallvm.LostDevices(t, b.Group); len(lost) > 0 {
		t.Errorf("the thin pool and LVM differ in the devices %v", lost)
	}
	suspended, err := filepath.Glob("/sys/block/dm-*/dm/suspended")
	hosttest.Must(t, err)
	for _, path := range suspended {
		if state, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(state)) == "1" {
			t.Errorf("%s is 1", path)
		}
	}
}
