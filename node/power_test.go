//go:build realfs

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// What the environment tells, as to TestPowerVictim of lvm/lvmtest/power: where the victim notes what it does, where it did so
// before the last cut, and whether this is the end.
const (
	powerJournal  = "NODELVM_TEST_JOURNAL"
	powerPromises = "NODELVM_TEST_PROMISES"
	powerLast     = "NODELVM_TEST_LAST"
)

// powerVolumes lie one behind the other on a disk that outlives the node.
var powerVolumes = []struct {
	name, fsType, options string
	size                  int64 // MiB
}{
	{"small", "ext4", "", 64},
	{"blocks", "ext4", "-b 2048", 64},
	{"large", "ext4", "-b 4096", 256},
	{"xfs", "xfs", "", 304},
	{"btrfs", "btrfs", "", 112},
}

// powerWork is what the victim does between two cuts. A line of the journal is written before a step, "? ...", and after
// it, "! ...", with the volume and its round; each round has a different UUID, as another logical volume would.
type powerWork struct {
	*bench
	journal *os.File
}

// TestPowerVictim sees that each volume starts by itself after a power cut, and then makes file systems until the power
// is cut again. test/e2e does the cutting.
func TestPowerVictim(t *testing.T) {
	path := os.Getenv(powerJournal)
	if path == "" {
		return // it is only a part of another test
	}
	w := &powerWork{bench: newBench(t)}
	w.attachVolumes(strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")[0])
	w.check(os.Getenv(powerPromises))
	if t.Failed() || os.Getenv(powerLast) != "" {
		return
	}
	journal, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_SYNC, 0o600)
	w.must(err)
	w.journal = journal
	for round := 0; ; round++ {
		for i, v := range powerVolumes {
			w.renew(i, fmt.Sprintf("%s-%s-%d", v.name, filepath.Base(path), round))
		}
	}
}

// attachVolumes gives each volume a device of device-mapper.
func (w *powerWork) attachVolumes(disk string) {
	w.t.Helper()
	at := int64(0)
	for _, v := range powerVolumes {
		const sectors = megabytes / 512
		create := exec.CommandContext(w.t.Context(), "dmsetup", "create", "power-"+v.name)
		create.Stdin = strings.NewReader(fmt.Sprintf("0 %d linear %s %d\n", v.size*sectors, disk, at*sectors))
		if out, err := create.CombinedOutput(); err != nil {
			w.t.Fatalf("dmsetup create: %v\n%s", err, out)
		}
		w.devices[v.name] = "/dev/" + w.run("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", "power-"+v.name)
		w.marks[v.name] = lvm.FormatMarkOffset(lvm.Bytes(v.size) * megabytes)
		at += v.size
	}
}

// check holds the volumes to the journal: one that was being staged, or had been, starts by itself; what was in it is there.
func (w *powerWork) check(journal string) {
	w.t.Helper()
	for i, v := range powerVolumes {
		step, uuid, kept := lastStep(journal, v.name)
		if step == "" || step == "? clear" {
			continue // there was none
		}
		if err := w.stageRound(i, uuid); err != nil {
			w.t.Errorf("%s: after %q of %s: %v", v.name, step, uuid, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(w.path(v.name), "kept"))
		if kept && (err != nil || string(text) != uuid) {
			w.t.Errorf("%s: after %q of %s its file reads %q, %v", v.name, step, uuid, text, err)
		}
		w.must(w.unstage(v.name, w.path(v.name)))
	}
}

// lastStep finds the last line of a volume, and whether a file had been written to it durably.
func lastStep(journal, name string) (step, uuid string, kept bool) {
	text, _ := os.ReadFile(journal) // there is none before the first cut
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); strings.HasSuffix(line, "\n") && len(fields) == 4 && fields[2] == name {
			step, uuid = fields[0]+" "+fields[1], fields[3]
			kept = step == "! write"
		}
	}
	return step, uuid, kept
}

// renew gives a volume a format mark, as a new logical volume has, and stages it.
func (w *powerWork) renew(i int, uuid string) {
	w.t.Helper()
	v := powerVolumes[i]
	note := func(step string) {
		_, err := fmt.Fprintf(w.journal, "%s %s %s\n", step, v.name, uuid)
		w.must(err)
	}
	note("? clear")
	w.run("wipefs", "-q", "-a", w.devices[v.name])
	w.write(w.devices[v.name], 0, make([]byte, 4096))
	w.must(w.tools.WriteMark(w.devices[v.name], filesystem.Mark{UUID: uuid, First: w.marks[v.name]})) // copies of the former superblock stay
	note("? stage")
	w.must(w.stageRound(i, uuid))
	file, err := os.Create(filepath.Join(w.path(v.name), "kept"))
	w.must(err)
	_, err = file.WriteString(uuid)
	w.must(err)
	w.must(file.Sync())
	w.must(file.Close())
	note("! write")
	w.must(w.unstage(v.name, w.path(v.name)))
}

func (w *powerWork) stageRound(i int, uuid string) error {
	v := powerVolumes[i]
	return w.stage(v.name, v.fsType, w.path(v.name), api.AttributeUUID, uuid, api.AttributeMkfsOptions, v.options)
}
