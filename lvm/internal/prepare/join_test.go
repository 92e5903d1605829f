package prepare

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// changing is a reader of disks that an admin changes: each read returns the next state, and then the last one.
type changing struct{ states []lvm.State }

func (c *changing) Read(context.Context) (lvm.State, error) {
	s := c.states[0]
	if len(c.states) > 1 {
		c.states = c.states[1:]
	}
	return s, nil
}

// TestJoinReadsAgain: join extends the group as it is under its lock, not as the device scan found it. A command that does not
// name a disk that an admin has added since would set that disk's MISSING flag.
func TestJoinReadsAgain(t *testing.T) {
	before := fixture.TestGroup("vg", nil)
	enlarged := fixture.TestGroup("vg", nil, nil)
	other := fixture.TestGroup("vg", nil)
	other.UUID = "made by hand"
	tagged := fixture.TestGroup("vg", nil)
	tagged.Tags = append(tagged.Tags, "by hand")
	joined := fixture.TestGroup("vg", nil, nil)
	for name, c := range map[string]struct {
		before *lvm.Group
		now    []lvm.Group
		ran    []string
	}{
		"nothing has changed":             {&before, []lvm.Group{before}, []string{"vgextend", "vgchange"}},
		"what does not matter":            {&before, []lvm.Group{tagged}, []string{"vgextend", "vgchange"}},
		"there is none":                   {nil, nil, []string{"vgcreate"}},
		"a disk was added":                {&before, []lvm.Group{enlarged}, nil},
		"it was renamed":                  {&before, nil, nil},
		"another one has its name":        {&before, []lvm.Group{other}, nil},
		"an admin created it":             {nil, []lvm.Group{other}, nil},
		"another group has the same name": {&before, []lvm.Group{before, other}, nil},
	} {
		var ran []string
		runner := recording{ran: &ran}
		after := []lvm.Group{joined}
		preparer := preparerOn(lvm.Machine{Runner: runner, Kernel: runner, Reader: &changing{[]lvm.State{{Groups: c.now}, {Groups: after}}}})
		p := &preparing{Preparer: preparer, reports: map[string]string{}}
		err := p.join(t.Context(), lvm.Declaration{Name: "vg"}, c.before, []ondisk.Disk{{BlockDevice: ondisk.BlockDevice{Path: "/dev/vgb"}}}, []string{"new"})
		if !slices.Equal(ran, c.ran) || (err == nil) != (c.ran != nil) {
			t.Errorf("%s: %q ran, want %q (%v)", name, ran, c.ran, err)
		}
		if c.ran == nil && (err == nil || !strings.Contains(err.Error(), "vg")) {
			t.Errorf("%s: the error does not name the group: %v", name, err)
		}
		unlock, err := preparer.engine.Locks.Acquire(t.Context(), before.UUID, "the next one")
		fixture.Must(t, err)
		unlock()
	}
}

// recording records the commands.
type recording struct {
	lvm.Kernel
	ran *[]string
}

func (r recording) Run(_ context.Context, argv []string) ([]byte, error) {
	*r.ran = append(*r.ran, argv[0])
	return nil, nil
}

func (recording) Sync([]string) error { return nil }

// mismatched is a kernel whose thin pools have another transaction than LVM's metadata.
type mismatched struct{ recording }

func (mismatched) Device(string) (string, bool, error) { return "/dev/dm-1", true, nil }

func (mismatched) Status(string) (string, string, error) {
	return "thin-pool", "8 10/1024 1/16 - rw discard_passdown queue_if_no_space - 1024", nil
}

// TestMismatchedPoolStaysAsItIs: a declared pool is not extended while LVM's metadata is of another state of it.
func TestMismatchedPoolStaysAsItIs(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Count: 100}})
	class := lvm.Class{Pool: "pool", Layout: lvm.LayoutThin, Overprovision: 100}
	g.LVs = []lvm.LV{{UUID: "p", Name: "pool", Extents: 16, Type: "thin-pool", Thin: &lvm.ThinPool{Data: "d", Metadata: "m", ChunkSize: 64 * lvm.KiB, Zero: true, TransactionID: 3}}}
	var ran []string
	kernel := mismatched{recording{ran: &ran}}
	p := &preparing{Preparer: preparerOn(lvm.Machine{Runner: kernel, Kernel: kernel, Reader: &changing{[]lvm.State{{Groups: []lvm.Group{g}}}}})}
	if err := p.makePool(t.Context(), g.UUID, class, g.Bytes(16)); lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), "transaction_id") || len(ran) > 0 {
		t.Errorf("%v; ran %q", err, ran)
	}
}
