//go:build realfs

package luks

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// Environment variables, as for TestPowerVictim in lvm/lvmtest/power: the journal that the victim writes, the journal from before the
// last cut, and whether this is the last run.
const (
	powerJournal  = "NODELVM_TEST_JOURNAL"
	powerPromises = "NODELVM_TEST_PROMISES"
	powerLast     = "NODELVM_TEST_LAST"
)

// powerVolumes are one after the other on a disk that survives the node. The passphrase of the last one makes its steps slow.
var powerVolumes = [...]struct {
	name  string
	block bool
	field string // of the Secret
}{{"files", false, FieldKey}, {"raw", true, FieldKey}, {"passphrase", false, FieldPassphrase}}

// Sizes of a powerVolume's logical volume, before and after its expansion.
const (
	powerSize  = 28 * lvm.MiB
	powerGrown = 36 * lvm.MiB
)

// powerPatternAt is the offset at which the victim writes on the mapping: no superblock lies there.
const powerPatternAt = 3 << 20

// powerSteps are the steps of a round. The journal has "? STEP VOLUME UUID" before a step, and "! STEP VOLUME UUID" after it. Each
// round has a different UUID, as another logical volume would.
var powerSteps = []string{"clear", "format", "write", "rotate", "expand", "open", "erase"}

// powerVolume is a volume in one round.
type powerVolume struct {
	*bench
	index int
	uuid  string
	Volume
}

// TestPowerVictim proves after a power cut that each volume opens, or is erased, without an admin's help. Then it formats, rotates,
// expands, opens and erases volumes until the next power cut. test/e2e cuts the power.
func TestPowerVictim(t *testing.T) {
	path := os.Getenv(powerJournal)
	if path == "" {
		return // it runs only as part of another test
	}
	b := newBench(t)
	must(t, b.Recover(t.Context()))
	promises, _ := os.ReadFile(os.Getenv(powerPromises)) // there are none before the first cut
	var found [len(powerVolumes)]powerVolume
	var next [len(powerVolumes)]int
	var notes string
	for i, v := range powerVolumes {
		step, uuid := lastStep(string(promises), v.name)
		found[i] = b.powerVolume(i, uuid)
		if next[i] = found[i].check(step); next[i] > 0 {
			notes += found[i].line("! " + powerSteps[next[i]-1])
		}
	}
	if t.Failed() || os.Getenv(powerLast) != "" {
		return
	}
	journal, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_SYNC, 0o600)
	must(t, err)
	work := func(w powerVolume, from int) {
		for _, step := range powerSteps[from:] {
			w.note(journal, w.line("? "+step))
			w.work(step)
			w.note(journal, w.line("! "+step))
		}
	}
	if notes != "" {
		found[0].note(journal, notes)
	}
	for i, w := range found { // continue where the power cut ended the last run
		if next[i] > 0 {
			work(w, next[i])
		}
	}
	for round := 0; ; round++ {
		for i, v := range powerVolumes {
			work(b.powerVolume(i, fmt.Sprintf("%s-%s-%d", v.name, filepath.Base(path), round)), 0)
		}
	}
}

// lastStep returns the last complete line of a volume in a journal.
func lastStep(journal, name string) (step, uuid string) {
	for line := range strings.Lines(journal) {
		if fields := strings.Fields(line); strings.HasSuffix(line, "\n") && len(fields) == 4 && fields[2] == name {
			step, uuid = fields[0]+" "+fields[1], fields[3]
		}
	}
	return step, uuid
}

func (b *bench) powerVolume(index int, uuid string) powerVolume {
	v := powerVolumes[index]
	w := powerVolume{b, index, uuid, NewVolume("group-uuid/"+v.name, uuid, "")}
	w.Block = v.block
	return w
}

func (w powerVolume) line(step string) string {
	return fmt.Sprintf("%s %s %s\n", step, powerVolumes[w.index].name, w.uuid)
}

func (w powerVolume) note(journal *os.File, lines string) {
	w.t.Helper()
	if _, err := journal.WriteString(lines); err != nil {
		w.t.Fatal(err)
	}
}

// attach gives the volume a device of a size: a new one, or that of the previous round.
func (w *powerVolume) attach(size lvm.Bytes) {
	w.t.Helper()
	name, disk := "power-"+powerVolumes[w.index].name, strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")[1]
	verb := "create"
	if exec.CommandContext(w.t.Context(), "dmsetup", "info", name).Run() == nil {
		verb = "load"
	}
	table := fmt.Sprintf("0 %d linear %s %d", size/512, disk, lvm.Bytes(w.index)*powerGrown/512)
	w.run("dmsetup", verb, name, "--table", table)
	w.run("dmsetup", "resume", name)
	w.Device = "/dev/" + w.run("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", name)
}

// key returns the volume's first or second key.
func (w powerVolume) key(which string) *Key {
	w.t.Helper()
	sum := sha256.Sum256([]byte(which + w.uuid))
	keys, err := ParseSecret(map[string]string{powerVolumes[w.index].field: hex.EncodeToString(sum[:])})
	must(w.t, err)
	return keys.Current
}

func (w powerVolume) pattern() []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%-64s", w.uuid)), 1024)
}

// work does a step of a round. The volume is open from its format to its erasure.
func (w *powerVolume) work(step string) {
	w.t.Helper()
	first, second := Keys{Current: w.key("first")}, Keys{Current: w.key("second")}
	switch step {
	case "clear": // like a new logical volume
		w.attach(powerSize)
		w.run("dd", "if=/dev/zero", "of="+w.Device, "bs=1M", fmt.Sprint("count=", int64(powerSize/lvm.MiB)), "conv=fsync", "status=none")
	case "format":
		w.stage(request(w.Volume, first))
	case "write":
		w.writePattern()
	case "rotate":
		w.stage(request(w.Volume, Keys{Current: second.Current, Previous: first.Current}))
	case "expand":
		w.attach(powerGrown)
		if _, size, err := w.Expand(w.t.Context(), request(w.Volume, second)); err != nil || size != powerGrown-lvm.LUKSHeaderSize {
			w.t.Fatalf("expansion of %s to %s: %v", w.Handle, size, err)
		}
	case "open":
		w.unstage(w.Handle)
		w.expectPattern(w.stage(request(w.Volume, second)))
	case "erase":
		w.unstage(w.Handle)
		must(w.t, w.Erase(w.t.Context(), w.Volume))
	}
}

func (w powerVolume) writePattern() {
	w.t.Helper()
	file, err := os.OpenFile(w.path(w.Volume), os.O_WRONLY, 0)
	must(w.t, err)
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt(w.pattern(), powerPatternAt); err != nil {
		w.t.Fatal(err)
	}
	must(w.t, file.Sync())
}

func (w powerVolume) expectPattern(device string) {
	w.t.Helper()
	file, err := os.Open(device)
	must(w.t, err)
	defer func() { _ = file.Close() }()
	found := make([]byte, len(w.pattern()))
	if _, err := file.ReadAt(found, powerPatternAt); err != nil || !bytes.Equal(found, w.pattern()) {
		w.t.Errorf("%s has %q, %v; want %q", w.Handle, found[:64], err, w.uuid)
	}
}

// check compares a volume with the last line of the journal before the power cut, and returns the next step of its round, 0 after
// the last one. Between its format and its erasure the volume is open.
func (w *powerVolume) check(step string) (next int) {
	w.t.Helper()
	mark, name, _ := strings.Cut(step, " ")
	at := slices.Index(powerSteps, name)
	if name == "" || name == "clear" {
		return 0 // it was never formatted
	}
	w.t.Logf("%s of %s", step, w.uuid)
	size := powerSize
	if at >= slices.Index(powerSteps, "expand") {
		size = powerGrown
	}
	w.attach(size)
	if name == "erase" {
		w.checkErased(mark == "!")
		return 0
	}
	device := w.stage(request(w.Volume, w.checkKeys(step, at)))
	if written := slices.Index(powerSteps, "write"); step == "! write" || at > written {
		w.expectPattern(device)
	}
	if !w.isHealthy(w.Volume, 1) {
		w.t.Errorf("%s: not healthy after %q and a stage", w.Handle, step)
	}
	if step == "? write" {
		return at
	}
	return at + 1
}

// checkKeys tests which keys open the volume, and returns those that the driver gets.
func (w powerVolume) checkKeys(step string, at int) Keys {
	w.t.Helper()
	first, second := w.key("first"), w.key("second")
	if at < slices.Index(powerSteps, "rotate") {
		return Keys{Current: first}
	}
	old, is := w.opens(w.Volume, first), w.opens(w.Volume, second)
	if !old && !is {
		w.t.Errorf("%s: after %q neither the old nor the new key opens it", w.Handle, step)
	}
	if step == "? rotate" {
		return Keys{Current: second, Previous: first}
	}
	if old || !is {
		w.t.Errorf("%s: after %q the old key opens it: %t, the new one: %t", w.Handle, step, old, is)
	}
	return Keys{Current: second}
}

// checkErased repeats the erasure, as the driver does for a volume whose deletion began.
func (w powerVolume) checkErased(done bool) {
	w.t.Helper()
	second := w.key("second")
	if done && w.opens(w.Volume, second) {
		w.t.Errorf("%s: the key opens an erased volume", w.Handle)
	}
	if err := w.Erase(w.t.Context(), w.Volume); err != nil {
		w.t.Errorf("%s: the erasure cannot be repeated: %v", w.Handle, err)
	}
	if w.opens(w.Volume, second) {
		w.t.Errorf("%s: the key opens the volume after a repeated erasure", w.Handle)
	}
	_, err := w.Stage(w.t.Context(), request(w.Volume, Keys{Current: second}))
	expectKind(w.t, err, lvm.KindConflict, "were destroyed")
}
