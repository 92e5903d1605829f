//go:build reallvm

package power

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// powerGroup is the group of the power-cut tests, on disks that outlive the node: test/e2e cuts the node's power while
// TestPowerVictim works on it, and runs the test again after the next boot.
const powerGroup = "nodelvm-power"

// The environment variables: the journal for the victim to write, the journal from before the last cut, and whether this is the
// last run.
const (
	powerJournal  = "NODELVM_TEST_JOURNAL"
	powerPromises = "NODELVM_TEST_PROMISES"
	powerLast     = "NODELVM_TEST_LAST"
)

// TestPowerVictim starts a driver, compares its volumes with the journal from before the power cut, and then creates, writes,
// extends, copies and deletes volumes until the next power cut.
func TestPowerVictim(t *testing.T) {
	path := os.Getenv(powerJournal)
	if path == "" {
		return // it runs only as part of another test
	}
	reallvm.DisableUdevRules(t, true)
	w := &powerWork{t: t, b: powerCutFixture(t), promises: promises{}, prefix: filepath.Base(path)}
	if before := os.Getenv(powerPromises); before != "" {
		text, err := os.ReadFile(before)
		hosttest.Must(t, err)
		w.promises = readPromises(string(text))
	}
	w.d = reallvm.StartDriver(t, "/var/lib/nodelvm-power")
	w.check()
	if os.Getenv(powerLast) != "" {
		w.leave()
	}
	if t.Failed() || os.Getenv(powerLast) != "" {
		return
	}
	journal, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	hosttest.Must(t, err)
	w.journal = journal
	w.begin()
	for {
		w.step()
	}
}

func powerCutFixture(t testing.TB) hosttest.Fixture {
	t.Helper()
	disks := strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")
	if len(disks) < 2 {
		t.Fatal("set NODELVM_TEST_DISKS to two blank disks that the test may overwrite, such as /dev/ubdb,/dev/ubdc in a lab node")
	}
	if _, there := reallvm.FindGroup(reallvm.ReadDisks(t), powerGroup); !there {
		reallvm.Admin(t, append([]string{"vgcreate", "-y", "-s", "4m", powerGroup}, disks...)...)
	}
	return hosttest.Fixture{Group: powerGroup, Admin: func(t testing.TB, argv ...string) { t.Helper(); reallvm.Admin(t, argv...) }, Read: reallvm.ReadDisks}
}

// powerWork is the victim's work between two cuts.
type powerWork struct {
	t         *testing.T
	b         hosttest.Fixture
	d         *hosttest.Driver
	journal   *os.File
	prefix    string // of the names of volumes created between these cuts
	n         int
	promises  promises
	volumes   []lvm.Volume
	snapshots []lvm.Snapshot
}

// note writes to the journal, which is outside of the node, and flushes it: "?" before a request, "!" after it.
func (w *powerWork) note(format string, args ...any) {
	w.t.Helper()
	line := fmt.Sprintf(format+"\n", args...)
	_, err := w.journal.WriteString(line)
	hosttest.Must(w.t, err)
	hosttest.Must(w.t, w.journal.Sync())
	w.promises.add(line)
}

// check compares the driver's volumes with the journal. A request without an answer may have taken effect or not.
func (w *powerWork) check() {
	t := w.t
	w.d.WaitWiped(t)
	w.volumes, w.snapshots = w.d.Volumes(t), w.d.Snapshots(t)
	there := map[string]bool{}
	for _, v := range w.volumes {
		there[v.Name] = true
		p := w.promises[v.Name]
		switch {
		case p == nil:
			t.Errorf("no request for %s", v.Name)
			continue
		case p.deleted:
			t.Errorf("%s was deleted, but exists", v.Name)
		case v.Size < p.size || v.Size > p.asked:
			t.Errorf("%s has %s; %s recorded, %s requested", v.Name, v.Size, p.size, p.asked)
		}
		device, err := w.d.Activate(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		if got := reallvm.ReadAt(t, device, 0, 1<<20); p.content != "" && !bytes.Equal(got, scrawled(p.content)) {
			t.Errorf("%s lacks %s, which was written and flushed", v.Name, p.content)
		}
	}
	for _, s := range w.snapshots {
		there[s.Name] = true
		if p := w.promises[s.Name]; p == nil || p.deleted {
			t.Errorf("the snapshot %s was not requested, or was deleted", s.Name)
		}
	}
	for name, p := range w.promises {
		if p.made && !p.deleting && !there[name] {
			t.Errorf("%s was created, but is missing", name)
		}
	}
	checkNothingElse(t, w.b, len(there))
	t.Logf("%d volumes and snapshots in the journal, %d on the node", len(w.promises), len(there))
}

// begin begins the journal with the existing volumes, so that it is complete, and writes to those without content.
func (w *powerWork) begin() {
	before := w.promises
	w.promises = promises{}
	var lines strings.Builder
	for _, v := range w.volumes {
		_, _ = fmt.Fprintf(&lines, "! make %s %d %s\n", v.Name, v.Size, before[v.Name].content)
	}
	for _, s := range w.snapshots {
		_, _ = fmt.Fprintf(&lines, "! make %s 0 %s\n", s.Name, before[s.Name].content)
	}
	w.promises.add(lines.String())
	w.note("%sworks", lines.String())
	for _, v := range w.volumes {
		if before[v.Name].content == "" {
			w.write(v)
		}
	}
}

// leave deletes everything.
func (w *powerWork) leave() {
	w.b.DeleteAll(w.t, w.d)
	w.d.Stop(w.t)
	g := w.b.ReadGroup(w.t)
	if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == lvm.DefaultPool }) {
		w.b.RemovePool(w.t)
	}
	checkNothingElse(w.t, w.b, 0)
}

// The most volumes and snapshots that the victim keeps: checking them takes time after each boot.
const (
	powerVolumes   = 5
	powerSnapshots = 2
)

// step does one random possible thing.
func (w *powerWork) step() {
	thick, thin := lvm.LayoutLinear, -1
	if rand.IntN(2) == 0 {
		thick = lvm.LayoutRAID1
	}
	for i, v := range w.volumes {
		if v.Class.Layout == lvm.LayoutThin && w.promises[v.Name].content != "" {
			thin = i
		}
	}
	what := rand.IntN(8)
	switch {
	case len(w.volumes) >= powerVolumes, what == 0 && len(w.volumes) > 0:
		w.deleteVolume(rand.IntN(len(w.volumes)))
	case len(w.snapshots) >= powerSnapshots, what == 1 && len(w.snapshots) > 0:
		w.deleteSnapshot()
	case what <= 3 && thin >= 0:
		w.snapshot(w.volumes[thin])
	case what == 4 && len(w.snapshots) > 0:
		w.copy(w.snapshots[rand.IntN(len(w.snapshots))])
	case what == 5 && len(w.volumes) > 0:
		w.extend(rand.IntN(len(w.volumes)))
	case what == 6 || thin < 0:
		w.write(w.make(lvm.Spec{Class: w.b.Thin("", 0, lvm.ID{}).Class, Required: 8 * lvm.MiB}, ""))
	default:
		class := lvm.Class{Layout: thick}
		if thick == lvm.LayoutRAID1 {
			class.Mirrors = 1
		}
		w.write(w.make(lvm.Spec{Class: w.b.In(class), Required: 8 * lvm.MiB}, ""))
	}
}

func (w *powerWork) name() string {
	w.n++
	return fmt.Sprintf("v%s-%d", w.prefix, w.n)
}

func (w *powerWork) make(spec lvm.Spec, content string) lvm.Volume {
	spec.Name = w.name()
	w.note("? make %s %d %s", spec.Name, spec.Required, content)
	v := w.d.MustCreate(w.t, spec)
	w.note("! make %s %d %s", spec.Name, v.Size, content)
	w.volumes = append(w.volumes, v)
	return v
}

func (w *powerWork) copy(s lvm.Snapshot) {
	content := w.promises[s.Name].content
	w.make(lvm.Spec{Class: w.b.Thin("", 0, lvm.ID{}).Class, Required: s.Size, Source: s.ID}, content)
}

// write writes a volume's name all over its first MiB, as a database writes its pages, and flushes it.
func (w *powerWork) write(v lvm.Volume) {
	device, err := w.d.Activate(w.t.Context(), v.ID, v.UUID)
	hosttest.Must(w.t, err)
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	hosttest.Must(w.t, err)
	_, err = f.Write(scrawled(v.Name))
	hosttest.Must(w.t, err)
	hosttest.Must(w.t, f.Sync())
	hosttest.Must(w.t, f.Close())
	w.note("! write %s 0 %s", v.Name, v.Name)
}

func scrawled(name string) []byte { return bytes.Repeat(fmt.Appendf(nil, "%-16s", name), 1<<16) }

func (w *powerWork) extend(i int) {
	v := w.volumes[i]
	w.note("? extend %s %d", v.Name, v.Size+lvmtest.ExtentSize)
	v, err := w.d.Extend(w.t.Context(), v.ID, v.Size+lvmtest.ExtentSize, 0)
	hosttest.Must(w.t, err)
	w.note("! extend %s %d", v.Name, v.Size)
	w.volumes[i] = v
}

func (w *powerWork) snapshot(v lvm.Volume) {
	name, content := w.name(), w.promises[v.Name].content
	w.note("? make %s 0 %s", name, content)
	w.snapshots = append(w.snapshots, w.d.MustSnapshot(w.t, name, v.ID))
	w.note("! make %s 0 %s", name, content)
}

func (w *powerWork) deleteVolume(i int) {
	v := w.volumes[i]
	w.note("? delete %s", v.Name)
	hosttest.Must(w.t, w.d.Delete(w.t.Context(), v.ID))
	w.note("! delete %s", v.Name)
	w.volumes = slices.Delete(w.volumes, i, i+1)
}

func (w *powerWork) deleteSnapshot() {
	s := w.snapshots[0]
	w.note("? delete %s", s.Name)
	hosttest.Must(w.t, w.d.DeleteSnapshot(w.t.Context(), s.ID))
	w.note("! delete %s", s.Name)
	w.snapshots = w.snapshots[1:]
}
