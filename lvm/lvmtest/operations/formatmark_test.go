package operations

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// markRecorder is a kernel that records format marks.
type markRecorder struct {
	lvm.Kernel
	node *lvmtest.Node
	mu   sync.Mutex
	fail bool
	ends map[lvm.Bytes]string // by the mark's place: the volume's tags at that moment
}

func (m *markRecorder) Write(d lvm.Device, data []byte, at lvm.Bytes) error {
	if err := m.Kernel.Write(d, data, at); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail {
		return errors.New("input/output error")
	}
	for _, g := range m.node.Groups() {
		for _, lv := range g.LVs {
			if lvm.DeviceUUID(g.UUID, lv.UUID) == d.UUID && bytes.Equal(data, lvm.FormatMark(lv.UUID)) {
				m.ends[at] += strings.Join(lv.Tags, " ")
			}
		}
	}
	return nil
}

// markedNode has a driver over a kernel that records marks.
func markedNode(t *testing.T) (*lvmtest.Node, *markRecorder, *hosttest.Driver) {
	t.Helper()
	node := hosttest.NewNode()
	recorder := &markRecorder{Kernel: node.Kernel(), node: node, ends: map[lvm.Bytes]string{}}
	return node, recorder, hosttest.StartOn(t, node, hosttest.Unsettled, lvm.Machine{Kernel: recorder})
}

// TestFormatMarkIsWrittenBeforeReady: a volume that the driver may format has its mark before any commit tags it as ready, at the place that
// its tag names; a raw volume, which shows each byte, and a copy have none.
func TestFormatMarkIsWrittenBeforeReady(t *testing.T) {
	node, recorder, d := markedNode(t)
	b := hosttest.OnFake(node)
	raw, encrypted, thin := b.Spec("raw", 8*lvm.MiB), b.Spec("encrypted", 8*lvm.MiB), b.Thin("thin", 16*lvm.MiB, lvm.ID{})
	raw.Block = true
	encrypted.Block, encrypted.Class.Encryption = true, lvm.EncryptionLUKS2
	for _, test := range []struct {
		spec lvm.Spec
		mark lvm.Bytes
	}{
		{b.Spec("plain", 12*lvm.MiB), lvm.FormatMarkOffset(12 * lvm.MiB)},
		{thin, lvm.FormatMarkOffset(16 * lvm.MiB)},
		{encrypted, lvm.FormatMarkOffset(24 * lvm.MiB)},
		{raw, 0},
	} {
		v := d.MustCreate(t, test.spec)
		if v.FormatMark != test.mark {
			t.Errorf("%s: its tag says %d, want %d", test.spec.Name, v.FormatMark, test.mark)
		}
		if zeroed := test.spec.Block; !zeroed && len(recorder.ends) > 0 {
			t.Errorf("%s: a mark is written before a pod or a batch needs it", test.spec.Name)
		}
		d.MustActivate(t, v)
		if tags := recorder.ends[test.mark]; (test.mark != 0) != (tags != "") || strings.Contains(tags, lvm.StateTag(lvm.StateReady)) || len(recorder.ends) > 1 {
			t.Errorf("%s: marks with these tags: %v", test.spec.Name, recorder.ends)
		}
		clear(recorder.ends)
	}
	for _, v := range d.Volumes(t) {
		if v.Name != "thin" {
			continue
		}
		copied := thin
		copied.Name, copied.Source = "copy", v.ID
		if made := d.MustCreate(t, copied); made.FormatMark != 0 || len(recorder.ends) > 0 {
			t.Errorf("a copy has a mark: %+v, %v", made, recorder.ends)
		}
	}
}

// TestVolumeWithoutItsFormatMarkIsNotReady: a volume whose mark cannot be written is not handed out, and others are.
func TestVolumeWithoutItsFormatMarkIsNotReady(t *testing.T) {
	node, recorder, d := markedNode(t)
	v := d.MustCreate(t, hosttest.OnFake(node).Spec("v", 8*lvm.MiB))
	raw := hosttest.OnFake(node).Spec("raw", 8*lvm.MiB)
	raw.Block = true
	other := d.MustCreate(t, raw)
	recorder.fail = true
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil || !strings.Contains(err.Error(), "format mark") {
		t.Errorf("activated without a mark: %v", err)
	}
	if _, err := d.Activate(t.Context(), other.ID, other.UUID); err != nil {
		t.Errorf("a volume without a mark waits for one with one: %v", err)
	}
	recorder.fail = false
	d.MustActivate(t, v)
	if tags := hosttest.StateTags(node, "vg-test"); tags["ready"] != 2 {
		t.Errorf("tags on the disks: %v, want 2 ready", tags)
	}
}

// TestCompletedVolumeGetsItsFormatMark: the driver that completes the volume of a killed one writes the mark after it has blanked the
// volume's end, where the mark is.
func TestCompletedVolumeGetsItsFormatMark(t *testing.T) {
	node, _, v, zeroes := successor(t)
	recorder := &markRecorder{Kernel: zeroes, node: node, ends: map[lvm.Bytes]string{}}
	hosttest.StartOn(t, node, hosttest.Unsettled, lvm.Machine{Kernel: recorder})
	if tags := recorder.ends[v.FormatMark]; !strings.Contains(tags, lvm.StateTag(lvm.StateCreating)) || len(zeroes.Spans()) != 2 {
		t.Errorf("marks %v after zeroing %q", recorder.ends, zeroes.Spans())
	}
}
