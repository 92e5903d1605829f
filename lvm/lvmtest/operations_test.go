package lvmtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// unsettled is a config with which the delayed commits of ready tags do not happen during a test.
var unsettled = lvm.Config{ReadyDelay: time.Hour}

// stateTags counts the state tags of a group's volumes.
func (n *Node) stateTags(group string) map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := map[string]int{}
	for _, lv := range n.group(group).LVs {
		for _, tag := range lv.Tags {
			if state, is := strings.CutPrefix(tag, "nodelvm.state="); is {
				count[state]++
			}
		}
	}
	return count
}

// TestReadyBatch: many new volumes share one commit of their ready tags; the use of one, and Close, commit at once.
func TestReadyBatch(t *testing.T) {
	node, b, d := startedWith(t, unsettled)
	var volumes []lvm.Volume
	d.counted(t, "five creates", 5, func() {
		for i := range 5 {
			volumes = append(volumes, d.create(t, b.spec(fmt.Sprintf("v%d", i), 8*lvm.MiB)))
		}
	})
	if tags := node.stateTags("vg-test"); tags["creating"] != 5 {
		t.Errorf("tags on the disks: %v, want 5 creating", tags)
	}
	if listed, err := d.List(t.Context()); err != nil || len(listed) != 5 {
		t.Errorf("of five new volumes %d are listed, %v", len(listed), err)
	}
	d.counted(t, "the first use", 1, func() {
		_, err := d.Activate(t.Context(), volumes[2].ID, volumes[2].UUID)
		must(t, err)
	})
	if tags := node.stateTags("vg-test"); tags["ready"] != 5 {
		t.Errorf("tags on the disks: %v, want 5 ready", tags)
	}
	d.create(t, b.spec("last", 8*lvm.MiB))
	d.counted(t, "closing", 1, func() { d.close(t) })
	if tags := node.stateTags("vg-test"); tags["ready"] != 6 {
		t.Errorf("tags on the disks after Close: %v, want 6 ready", tags)
	}

	soon := &Driver{}
	cfg := soon.config(unsettled)
	cfg.ReadyDelay = 20 * time.Millisecond
	soon.Host = node.Start(t, cfg)
	soon.create(t, b.spec("alone", 8*lvm.MiB))
	for deadline := time.Now().Add(time.Minute); node.stateTags("vg-test")["creating"] > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the driver does not tag a new volume as ready by itself")
		}
	}
}

// TestReadyCommitFails: a volume whose ready tag is not committed is not handed out; one whose tag is committed despite an error is.
func TestReadyCommitFails(t *testing.T) {
	for _, late := range []bool{false, true} {
		node, b, d := startedWith(t, unsettled)
		v := d.create(t, b.spec("v", 8*lvm.MiB))
		node.Fail(Fault{Late: late})
		_, err := d.Activate(t.Context(), v.ID, v.UUID)
		if late != (err == nil) {
			t.Errorf("activation with a failing ready commit (late: %v): %v", late, err)
		}
		_, err = d.Activate(t.Context(), v.ID, v.UUID)
		must(t, err)
		if tags := node.stateTags("vg-test"); tags["ready"] != 1 {
			t.Errorf("tags on the disks: %v, want 1 ready", tags)
		}
	}
}

// TestReadyCommitWaitsForMissingPV: the driver does not commit ready tags while a disk is missing, since LVM would set its MISSING flag.
func TestReadyCommitWaitsForMissingPV(t *testing.T) {
	node := newNode()
	d := node.driver(t, unsettled)
	v := d.create(t, fakeFixture(node).spec("v", 8*lvm.MiB))
	putBack := node.loseDisk("vg-test", 5)
	before := len(d.commands)
	d.close(t)
	if ran := d.commands[before:]; len(ran) > 0 {
		t.Errorf("with a missing disk, Close ran %v", ran)
	}
	putBack()
	next := node.driver(t, unsettled)
	_, err := next.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	if tags := node.stateTags("vg-test"); tags["ready"] != 1 {
		t.Errorf("tags with the disk back: %v, want 1 ready", tags)
	}
}

// loseDisk removes the n-th disk of a group until it is put back.
func (n *Node) loseDisk(group string, i int) (putBack func()) {
	var device string
	n.Change(group, func(g *lvm.Group) {
		pv := &g.PVs[i]
		device, pv.Device, pv.Missing = pv.Device, "", true
	})
	return func() {
		n.Change(group, func(g *lvm.Group) { g.PVs[i].Device, g.PVs[i].Missing = device, false })
	}
}

// successor returns a driver, not yet started, on the node of one that was killed after it returned a volume, and before it
// could tag the volume as ready. It records what it zeroes.
func successor(t *testing.T) (*Node, *Driver, lvm.Volume, *zeroing) {
	node := newNode()
	next := &Driver{}
	cfg := next.config(unsettled)
	killed := node.host(cfg)
	must(t, killed.Start(t.Context()))
	v, err := killed.Create(t.Context(), fakeFixture(node).spec("v", 64*lvm.MiB))
	must(t, err)
	zeroes := &zeroing{kernel: kernel{node}}
	next.Host = node.hostOn(cfg, lvm.Machine{Kernel: zeroes})
	return node, next, v, zeroes
}

// TestKillBeforeReadyCommit: a driver that dies between its answer and the ready commit loses nothing: the next one blanks the
// volume's beginning and end, and keeps it.
func TestKillBeforeReadyCommit(t *testing.T) {
	_, next, v, zeroes := successor(t)
	next.counted(t, "the next start, with the report that checks the direct read", 2, func() { must(t, next.Start(t.Context())) })
	if want := []string{"0-8 MiB", "63 MiB-64 MiB"}; !slices.Equal(zeroes.spans, want) {
		t.Errorf("it zeroed %q, want %q", zeroes.spans, want)
	}
	if now, err := next.Lookup(t.Context(), v.ID); err != nil || now != v {
		t.Errorf("the created volume %+v became %+v, %v", v, now, err)
	}
	must(t, next.Close(t.Context()))
}

// blocking is a runner whose commands in one group do not end until they are released.
type blocking struct {
	runner
	group   string
	release chan struct{}
}

func (b blocking) Run(ctx context.Context, argv []string) ([]byte, error) {
	if slices.ContainsFunc(argv, func(arg string) bool { return arg == b.group || strings.HasPrefix(arg, b.group+"/") }) {
		<-b.release
	}
	return b.runner.Run(ctx, argv)
}

// TestHungCommandBlocksOneVG: while a command does not end, the driver refuses all requests for its group, and only for that one. When it
// ends, the group works again.
func TestHungCommandBlocksOneVG(t *testing.T) {
	node := newNode()
	b := fakeFixture(node)
	block := blocking{runner: runner{node, nil}, group: "vg-test", release: make(chan struct{})}
	h := node.hostOn(lvm.Config{Cluster: Cluster, LockTimeLimit: time.Second}, lvm.Machine{Runner: block})
	must(t, h.Start(t.Context()))
	hanging := make(chan error, 1)
	go func() {
		_, err := h.Create(context.Background(), b.spec("hangs", 8*lvm.MiB))
		hanging <- err
	}()
	hung := func() time.Duration {
		for _, g := range h.Metrics().Groups {
			if g.Name == "vg-test" {
				return g.Hung
			}
		}
		return 0
	}
	for deadline := time.Now().Add(time.Minute); hung() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the driver does not notice a command that exceeds its time limit")
		}
	}
	if c, err := h.Capacity(t.Context(), b.class()); err != nil || c != (lvm.Capacity{}) {
		t.Errorf("the blocked group has the capacity %+v, %v", c, err)
	}
	_, err := h.Create(t.Context(), b.spec("other", 8*lvm.MiB))
	wantKind(t, "create in the blocked group", err, lvm.KindInsufficientCapacity)
	if err != nil && !strings.Contains(err.Error(), "lvcreate") {
		t.Errorf("the error does not name the command: %v", err)
	}
	id := lvm.ID{VG: b.group(t).UUID, LV: "any"}
	wantKind(t, "delete in the blocked group", h.Delete(t.Context(), id), lvm.KindBusy)
	_, err = h.Extend(t.Context(), id, lvm.GiB, 0)
	wantKind(t, "extension in the blocked group", err, lvm.KindBusy)
	elsewhere := b.spec("elsewhere", 8*lvm.MiB)
	elsewhere.Class.Group = "vg-other"
	if _, err := h.Create(t.Context(), elsewhere); err != nil {
		t.Errorf("create in another group: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a command does not end: %v", err)
	}
	close(block.release)
	must(t, <-hanging)
	must(t, h.Close(t.Context()))
	if hung() != 0 {
		t.Error("the group still counts as blocked")
	}
}

// TestPeersFitTogetherOrNotAtAll: the volumes of one pod fit together, or none is created.
func TestPeersFitTogetherOrNotAtAll(t *testing.T) {
	_, b, d := startedWith(t, unsettled)
	all := d.capacity(t, b.class()).Available
	first, second, large := b.spec("first", all/2), b.spec("second", all/2), b.spec("large", all/2+ExtentSize)

	d.counted(t, "a pod that does not fit", 0, func() {
		_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{large})
		wantKind(t, "the smaller of two that do not fit together", err, lvm.KindInsufficientCapacity)
		if err != nil && !strings.Contains(err.Error(), `on one node with large`) {
			t.Errorf("the error does not name the peer: %v", err)
		}
	})
	if c := d.capacity(t, b.class()).Available; c != all {
		t.Errorf("%s are free after a refusal, %s before", c, all)
	}

	_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second, first})
	must(t, err)
	if c := d.capacity(t, b.class()).Available; c != 0 {
		t.Errorf("with capacity reserved for the peer, %s are free", c)
	}
	_, err = d.Create(t.Context(), b.spec("stranger", ExtentSize))
	wantKind(t, "another pod's volume in the reserved capacity", err, lvm.KindInsufficientCapacity)
	_, err = d.CreateWithPeers(t.Context(), second, []lvm.Spec{first})
	must(t, err)
	d.counted(t, "both again", 0, func() {
		_, err = d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
		must(t, err)
	})

	wrong := b.spec("wrong", -1)
	must(t, d.Delete(t.Context(), lvm.ID{VG: b.group(t).UUID, LV: find(t, b.group(t), d.volumes(t)[0].ID.LV).Name}))
	d.waitWiped(t)
	name := d.volumes(t)[0].Name
	for _, spec := range []lvm.Spec{first, second} {
		if spec.Name != name {
			_, err = d.CreateWithPeers(t.Context(), spec, []lvm.Spec{wrong})
			must(t, err) // an invalid peer does not matter
		}
	}
}

// TestCreatedPeerIsReturnedAgain: a created volume is returned again even if its peer no longer fits, and Fits agrees with
// CreateWithPeers.
func TestCreatedPeerIsReturnedAgain(t *testing.T) {
	node, b, d := startedWith(t, unsettled)
	all := d.capacity(t, b.class()).Available
	first, second, stranger := b.spec("first", all/2), b.spec("second", all/2), b.spec("stranger", 2*ExtentSize)
	must(t, d.Fits(t.Context(), []lvm.Spec{first, second}))
	made, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
	must(t, err)

	must(t, d.Close(t.Context())) // and its reservation for the second is lost
	d = node.driver(t, unsettled)
	_, err = d.Create(t.Context(), stranger)
	must(t, err)
	again, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
	must(t, err)
	if again.ID != made.ID || again.UUID != made.UUID {
		t.Errorf("created %+v, and then %+v", made, again)
	}
	for what, err := range map[string]error{
		"CreateWithPeers": func() error { _, err := d.CreateWithPeers(t.Context(), second, []lvm.Spec{first}); return err }(),
		"Fits":            d.Fits(t.Context(), []lvm.Spec{first, second}),
	} {
		wantKind(t, what, err, lvm.KindInsufficientCapacity)
		var misfit *lvm.UnplaceableError
		if !errors.As(err, &misfit) || misfit.Spec.Name != "second" {
			t.Errorf("%s does not name the volume that does not fit: %v", what, err)
		}
	}
	if c := d.capacity(t, b.class()).Available; c != all/2-2*ExtentSize {
		t.Errorf("after the refusals %s are free", c)
	}
}

// TestFrozenFileSystemIsNotCopied: the driver refuses a snapshot or clone of a volume with a frozen file system before it changes anything.
func TestFrozenFileSystemIsNotCopied(t *testing.T) {
	node, b, d := started(t)
	v := d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{}))
	device, err := d.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	node.Freeze(device, true)
	spec := lvm.SnapshotSpec{Name: "s", Source: v.ID}
	d.counted(t, "a snapshot of a frozen file system", 0, func() {
		_, err := d.CreateSnapshot(t.Context(), spec)
		wantKind(t, "a snapshot of a frozen file system", err, lvm.KindBusy)
	})
	d.counted(t, "a clone of a frozen file system", 0, func() {
		_, err := d.Create(t.Context(), b.thin("c", 8*lvm.MiB, v.ID))
		wantKind(t, "a clone of a frozen file system", err, lvm.KindBusy)
	})
	node.Freeze(device, false)
	d.counted(t, "the snapshot", 3, func() { _, err = d.CreateSnapshot(t.Context(), spec) })
	must(t, err)
	d.create(t, b.thin("c", 8*lvm.MiB, v.ID))
	if b.Suspended(t, device) {
		t.Error("the origin is suspended")
	}
}

// TestUncertainCreateAsksForRetry: while a failed create may have left something, its error asks the caller to retry: after any other error
// csi-provisioner would forget the volume.
func TestUncertainCreateAsksForRetry(t *testing.T) {
	for what, fail := range map[string]func(n *Node){
		"the leftover cannot be removed": func(n *Node) {
			n.Before = func(argv []string) {
				if argv[0] == "lvcreate" {
					n.fault = &Fault{Call: n.calls} // the next command fails too
				}
			}
		},
		"its group is gone": func(n *Node) {
			n.Before = func(argv []string) { n.group("vg-test").away = argv[0] == "lvcreate" }
		},
		"its disk falls silent": func(n *Node) {
			n.Before = func([]string) { n.group("vg-test").PVs[0].Unresponsive = true }
		},
		"its disk goes away": func(n *Node) {
			n.Before = func([]string) { n.group("vg-test").PVs[0].Missing = true }
		},
	} {
		t.Run(what, func(t *testing.T) {
			node := newNode()
			b := fakeFixture(node)
			d := b.Start(t)
			node.Fail(Fault{Late: true})
			fail(node)
			_, err := d.Create(t.Context(), b.spec("v", 8*lvm.MiB))
			wantKind(t, what, err, lvm.KindBusy)
			node.Change("vg-test", func(g *lvm.Group) {
				node.Before, node.group("vg-test").away, g.PVs[0].Unresponsive, g.PVs[0].Missing = nil, false, false, false
			})
			d.create(t, b.spec("v", 8*lvm.MiB))
		})
	}
}
