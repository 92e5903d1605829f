package ondisk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestUnresponsiveDiskDelaysOneRead: an unresponsive disk delays one reading by its patience, and later ones not at all; the next reading after its
// answer reads it again.
func TestUnresponsiveDiskDelaysOneRead(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/empty")
	node.Add(t, "nbd0", 64<<20, nil)
	disks := disksOf(node)
	disks.Patience = 500 * time.Millisecond // long enough for the other disk on a busy machine
	hang := make(chan struct{})
	var asked sync.WaitGroup
	asked.Add(1)
	times := 0
	disks.probe = func(d BlockDevice) probe {
		if d.Name == "nbd0" {
			times++
			if times > 1 {
				t.Error("the hung disk is asked again")
			}
			<-hang
			defer asked.Done()
		}
		return disks.prober().probe(d, probe{})
	}
	for _, wanted := range []struct{ least, most time.Duration }{{3 * disks.Patience, time.Minute}, {0, disks.Patience}} {
		began := time.Now()
		state, err := disks.Read(context.Background())
		fixture.Must(t, err)
		if took := time.Since(began); took < wanted.least || took > wanted.most {
			t.Errorf("it took %v, not %v to %v", took, wanted.least, wanted.most)
		}
		if len(state.Groups) != 1 || state.Groups[0].Problem != "" || len(state.Unresponsive) != 1 || len(state.UnreadDevices) != 1 || !strings.Contains(state.UnreadDevices[0], "nbd0 could not be read: it does not answer") {
			t.Errorf("%+v", state)
		}
	}
	close(hang)
	asked.Wait()
	disks.probe = nil
	for range 6000 { // that reading ends a moment after the answer
		state, err := disks.Read(context.Background())
		fixture.Must(t, err)
		if len(state.UnreadDevices) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the disk that answers again is not read")
}

// TestGroupWithUnresponsiveDisk: a group with an unresponsive disk has the values of the last reading and no capacity; it is not absent.
func TestGroupWithUnresponsiveDisk(t *testing.T) {
	_, disks := plugged(t, "linear")
	disks.Patience = 500 * time.Millisecond
	whole, err := disks.Read(t.Context())
	fixture.Must(t, err)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	mute := filepath.Base(whole.Groups[0].PVs[0].Device)
	disks.probe = func(d BlockDevice) probe {
		if d.Name == mute {
			<-hang
		}
		before, _ := disks.lastOf(d)
		return disks.prober().probe(d, before)
	}
	for _, most := range []time.Duration{time.Minute, disks.Patience} {
		began := time.Now()
		state, err := disks.Read(t.Context())
		fixture.Must(t, err)
		if took := time.Since(began); took > most {
			t.Errorf("it took %v", took)
		}
		g := state.Groups[0]
		if !strings.Contains(g.Problem, mute+" is unresponsive") || len(state.Unresponsive) != 1 {
			t.Errorf("problem %q, silent %v", g.Problem, state.Unresponsive)
		}
		g.Problem, g.PVs = "", slices.Clone(g.PVs)
		for i := range g.PVs {
			if silent := filepath.Base(g.PVs[i].Device) == mute; g.PVs[i].Unresponsive != silent || g.PVs[i].Missing {
				t.Errorf("%+v", g.PVs[i])
			}
			g.PVs[i].Unresponsive = false
		}
		if diff := cmp.Diff(whole.Groups[0], g); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPVOnUnknownUnresponsiveDisk: a PV that may be on a disk that never answered is not just missing.
func TestPVOnUnknownUnresponsiveDisk(t *testing.T) {
	node, disks := plugged(t, "missing")
	node.Add(t, "sdz", 64<<20, nil)
	disks.Patience = 200 * time.Millisecond
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	disks.probe = func(d BlockDevice) probe {
		if d.Name == "sdz" {
			<-hang
		}
		return disks.prober().probe(d, probe{})
	}
	state, err := disks.Read(t.Context())
	fixture.Must(t, err)
	if problem := state.Groups[0].Problem; !strings.Contains(problem, "is missing, or on an unresponsive disk") || !strings.Contains(problem, "sdz") {
		t.Errorf("problem %q", problem)
	}
}

// TestReadSeesEachChange: a reading uses a cached value only if the disk proves it. It sees every change at once, and neither reads
// nor parses an unchanged text again.
func TestReadSeesEachChange(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/linear")
	disks := disksOf(node)
	first, err := disks.Read(t.Context())
	fixture.Must(t, err)
	text := disks.texts.known[0]
	again, err := disks.Read(t.Context())
	fixture.Must(t, err)
	if diff := cmp.Diff(first, again); diff != "" || len(disks.texts.known) != 1 || disks.texts.known[0] != text {
		t.Errorf("%d texts, %s", len(disks.texts.known), diff)
	}
	node.Plug(t, "testdata/groups/striped") // loop0 and loop1 are other devices with the same names now
	changed, err := disks.Read(t.Context())
	fixture.Must(t, err)
	if diff := cmp.Diff(readNode(node, t), changed); diff != "" || len(disks.texts.known) != 1 {
		t.Errorf("%d texts, %s", len(disks.texts.known), diff)
	}
	fixture.Must(t, os.RemoveAll(filepath.Join(node.Sys, "class/block/loop2")))
	node.Partitions(t)
	gone, err := disks.Read(t.Context())
	fixture.Must(t, err)
	if diff := cmp.Diff(readNode(node, t), gone); diff != "" || !gone.Groups[0].PVs[0].Missing && !gone.Groups[0].PVs[1].Missing && !gone.Groups[0].PVs[2].Missing {
		t.Error(diff)
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/empty")
	disks := disksOf(node)
	hang := make(chan struct{})
	defer close(hang)
	disks.probe = func(d BlockDevice) probe {
		<-hang
		return probe{device: d}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := disks.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// TestTornRead: half of a commit has a wrong checksum; the next attempt reads all of it.
func TestTornRead(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/empty")
	want, err := disksOf(node).Read(context.Background())
	fixture.Must(t, err)
	entries, err := os.ReadDir(node.Dev)
	fixture.Must(t, err)
	f, err := os.OpenFile(filepath.Join(node.Dev, entries[0].Name()), os.O_RDWR, 0)
	fixture.Must(t, err)
	defer func() { _ = f.Close() }()
	text := make([]byte, 100)
	_, err = f.ReadAt(text, 4096+mdaHeaderSize)
	fixture.Must(t, err)
	_, err = f.WriteAt(make([]byte, 100), 4096+mdaHeaderSize)
	fixture.Must(t, err)
	disks, pauses := disksOf(node), 0
	disks.probe = func(d BlockDevice) probe {
		r := disks.prober()
		r.pause = func(time.Duration) {
			pauses++
			if _, err := f.WriteAt(text, 4096+mdaHeaderSize); err != nil {
				t.Error(err)
			}
		}
		return r.probe(d, probe{})
	}
	got, err := disks.Read(context.Background())
	fixture.Must(t, err)
	if diff := cmp.Diff(want, got); diff != "" || pauses != 1 {
		t.Errorf("after %d pauses: %s", pauses, diff)
	}
}

// TestUnreadableDeviceIsNamed: an unreadable device is named, and is not absent.
func TestUnreadableDeviceIsNamed(t *testing.T) {
	node, r := plugged(t, "linear")
	entries, err := os.ReadDir(node.Dev)
	fixture.Must(t, err)
	fixture.Must(t, os.Remove(filepath.Join(node.Dev, entries[0].Name())))
	node.Add(t, "short", 64<<20, nil)
	fixture.Must(t, os.Truncate(filepath.Join(node.Dev, "short"), 4096))
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	if state.CheckComplete() == nil || len(state.UnreadDevices) != 2 || !strings.Contains(strings.Join(state.UnreadDevices, " "), "the device ends before") {
		t.Errorf("unread: %q", state.UnreadDevices)
	}
	missing := 0
	for _, pv := range state.Groups[0].PVs {
		if pv.Missing {
			missing++
		}
	}
	if missing != 1 {
		t.Errorf("%d PVs are missing, not the one that cannot be read", missing)
	}
}

// TestEqualTexts: equal texts are one text, even if a concurrent reading made the cache forget the first of them.
func TestEqualTexts(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/linear")
	probes := probesOf(node, t)
	alone := func(string) (bool, error) { return false, nil }
	want := assemble(probes, alone)
	var texts groupTexts
	first := probes[0].areas[0].text
	for i := range probes {
		probes[i].areas = []area{{header: probes[i].areas[0].header, text: texts.intern(first.checksum, []byte(first.text))}}
		texts.keep(nil)
	}
	if diff := cmp.Diff(want, assemble(probes, alone)); diff != "" || len(probes) < 2 {
		t.Errorf("%d disks with equal texts: %s", len(probes), diff)
	}
}

// TestMovedPV: a PV that changed without its group, and one in two groups.
func TestMovedPV(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/linear")
	probes := probesOf(node, t)
	text := probes[0].areas[0].text.text
	alone := func(string) (bool, error) { return false, nil }

	older := strings.Replace(text, "seqno = 1", "seqno = ", 1)
	changed := append([]probe(nil), probes...)
	changed[0].areas = []area{{header: probes[0].areas[0].header, text: &groupText{text: older}}}
	state := assemble(changed, alone)
	if state.Groups[0].Seqno != 11 {
		t.Errorf("the older seqno %d wins", state.Groups[0].Seqno)
	}

	twin := strings.Replace(text, "max_lv = 0", "max_lv = 5", 1)
	changed[0].areas = []area{{header: probes[0].areas[0].header, text: &groupText{text: twin}}}
	if state = assemble(changed, alone); len(state.Groups) != 1 || !strings.Contains(state.Groups[0].Problem, "different metadata with the same sequence number 11") || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || state.Groups[0].IncompleteReason() == "" {
		t.Errorf("two texts with one seqno: %+v", state)
	}

	stolen := strings.Replace(text, `id = "`, `id = "A`, 1)
	stolen = stolen[:strings.Index(stolen, `"A`)+7] + stolen[strings.Index(stolen, `"A`)+8:]
	changed[0].areas = []area{{header: probes[0].areas[0].header, text: &groupText{text: stolen}}}
	state = assemble(changed, alone)
	if len(state.Groups) != 2 || state.CheckComplete() == nil {
		t.Errorf("a PV of two groups: %+v", state)
	}
	for _, g := range state.Groups {
		if !g.Closed || !strings.Contains(g.Problem, "says that it belongs to volume group vg") || g.PVs[0].Missing == g.PVs[1].Missing && g.PVs[1].Missing == g.PVs[2].Missing || len(g.LVs) == 0 {
			t.Errorf("a PV of two groups: %+v", g)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	node := fixture.NewTestNode(b)
	node.Plug(b, "testdata/groups/linear")
	disks := disksOf(node)
	b.ReportAllocs()
	for b.Loop() {
		_, err := disks.Read(context.Background())
		fixture.Must(b, err)
	}
}
