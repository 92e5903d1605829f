package dataleak

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// encryptor records what a Host asks of it, and the LVM commands in between.
type encryptor struct {
	node *lvmtest.Node

	mapping string // the device of the mapping; "": it is closed

	mu     sync.Mutex
	events []string
	inUse  bool   // a pod uses the mapping
	fails  int    // the next so many erasures fail
	below  string // a device: to resume a mapping on it blocks while it is suspended
	stuck  chan struct{}
	erased func() // runs when an erasure has written everything
}

func (e *encryptor) note(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

func (e *encryptor) observe(c lvm.Command) { e.note(c.Name) }

// take returns the events since the last time that are of interest.
func (e *encryptor) take(kinds ...string) (events []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		kind, _, _ := strings.Cut(event, " ")
		if slices.Contains(kinds, kind) {
			events = append(events, event)
		}
	}
	e.events = nil
	return events
}

// awaitRemoval waits until the driver has noted an lvremove. The volume is gone a moment before.
func (e *encryptor) awaitRemoval(t *testing.T) {
	t.Helper()
	wait.For(t, time.Minute, "the driver has noted the removal", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Contains(e.events, "lvremove")
	})
}

func (e *encryptor) Mapping(string) (string, uint64, bool, error) {
	e.note("mapping")
	return e.mapping, 0, e.mapping != "", nil
}

func (e *encryptor) Unstage(context.Context, string) error {
	e.note("unstage")
	if e.inUse {
		return lvm.Errorf(lvm.KindInUse, "the encrypted mapping is open")
	}
	return nil
}

func (e *encryptor) Suspend(string) (func() error, error) {
	e.note("suspend")
	return func() error {
		if suspended, err := e.node.Kernel().IsSuspended(e.below); suspended || err != nil {
			e.note("blocked")
		}
		e.note("resume")
		return nil
	}, nil
}

func (e *encryptor) Erase(ctx context.Context, v lvm.Volume, device string, check func() error) error {
	e.mu.Lock()
	stuck, fail, erased := e.stuck, e.fails > 0, e.erased
	if fail {
		e.fails--
	}
	e.mu.Unlock()
	e.note("erase " + string(v.State) + " " + v.ID.LV)
	if err := check(); err != nil {
		return err
	}
	if stuck != nil {
		close(stuck)
		<-ctx.Done()
		return ctx.Err()
	}
	if fail {
		return errors.New("an I/O error")
	}
	if erased != nil {
		erased()
	}
	return nil
}

// startWith starts a driver on the node.
func startWith(t *testing.T, node *lvmtest.Node, e *encryptor, m lvm.Machine) *hosttest.Driver {
	t.Helper()
	return hosttest.StartOn(t, node, lvm.Config{Encryption: e, Observe: e.observe, ReadyDelay: time.Hour}, m)
}

// startEncrypted starts one on a new node.
func startEncrypted(t *testing.T, e *encryptor) (*lvmtest.Node, hosttest.Fixture, *hosttest.Driver) {
	t.Helper()
	e.node = hosttest.NewNode()
	return e.node, hosttest.OnFake(e.node), startWith(t, e.node, e, lvm.Machine{})
}

func encryptedSpec(b hosttest.Fixture, layout lvm.Layout, name string, source lvm.ID) lvm.Spec {
	spec := b.Spec(name, 8*lvm.MiB)
	if layout == lvm.LayoutThin {
		spec = b.Thin(name, 8*lvm.MiB, source)
	}
	spec.Class.Encryption = lvm.EncryptionLUKS2
	return spec
}

// TestErasure: the keys of a deleted volume are destroyed under its state tag, and its data are not zeroed; a failure is retried. It is
// not deleted while its mapping is in use.
func TestErasure(t *testing.T) {
	for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutThin} {
		t.Run(string(layout), func(t *testing.T) {
			node := hosttest.NewNode()
			b, e, zeroes := hosttest.OnFake(node), &encryptor{node: node, fails: 2}, &hosttest.ZeroRecorder{Kernel: node.Kernel()}
			d := startWith(t, node, e, lvm.Machine{Kernel: zeroes})
			v := d.MustCreate(t, encryptedSpec(b, layout, "v", lvm.ID{}))
			d.MustActivate(t, v) // tags it as ready
			e.inUse = true
			hosttest.WantKind(t, "deletion in use", d.Delete(t.Context(), v.ID), lvm.KindInUse)
			e.inUse = false
			e.take()
			d.MustRemove(t, v)
			erasure := "erase deleting " + v.ID.LV
			if got, want := e.take("unstage", "lvchange", "erase", "lvremove"), []string{"unstage", "lvchange", erasure, erasure, erasure, "lvremove"}; !slices.Equal(got, want) {
				t.Errorf("the deletion did %q, want %q", got, want)
			}
			if len(zeroes.Spans()) > 0 {
				t.Errorf("it zeroed %q", zeroes.Spans())
			}
		})
	}
}

// TestErasureInFullPool: to destroy key slots whose blocks a volume shares with one that was restored from its deleted snapshot takes new blocks. In a
// full pool the volume is removed without that: only removals free blocks there.
func TestErasureInFullPool(t *testing.T) {
	for mode, erasures := range map[string]int{"rw": 3, "out_of_data_space": 1} {
		t.Run(mode, func(t *testing.T) {
			e := &encryptor{fails: 2}
			node, b, d := startEncrypted(t, e)
			v := d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "v", lvm.ID{}))
			d.MustActivate(t, v) // tags it as ready
			pool, _, err := node.Kernel().Device(lvmtest.DeviceUUID(string(v.ID.VG), hosttest.FindLV(t, b.ReadGroup(t), lvm.DefaultPool).UUID) + "-tpool")
			hosttest.Must(t, err)
			target, status, err := node.Kernel().Status(pool)
			hosttest.Must(t, err)
			node.SetStatus(pool, target, strings.Replace(status, " rw ", " "+mode+" ", 1))
			e.take()
			d.MustRemove(t, v)
			want := append(slices.Repeat([]string{"erase deleting " + v.ID.LV}, erasures), "lvremove")
			if got := e.take("erase", "lvremove"); !slices.Equal(got, want) {
				t.Errorf("the deletion did %q, want %q", got, want)
			}
		})
	}
}

// TestBoundMappingStaysOpen: an encrypted raw volume is not closed and deleted while it is bound at a pod's path: the next device would get
// the mapping's number.
func TestBoundMappingStaysOpen(t *testing.T) {
	e := &encryptor{}
	node, b, d := startEncrypted(t, e)
	v := d.MustCreate(t, encryptedSpec(b, lvm.LayoutLinear, "v", lvm.ID{}))
	mapping := d.MustCreate(t, b.Light("mapping", 8*lvm.MiB)) // the fake has no other devices
	device := d.MustDevice(t, mapping)
	e.mapping = device
	release := node.Bind(device)
	e.take()
	hosttest.WantKind(t, "deletion while it is bound", d.Delete(t.Context(), v.ID), lvm.KindInUse)
	if got := e.take("unstage", "erase"); len(got) > 0 {
		t.Errorf("meanwhile the driver did %q", got)
	}
	release()
	d.MustRemove(t, v)
}

// TestErasureReachesAllLegs: the driver removes an encrypted RAID volume only when the kernel has rebuilt all its legs: another one could
// still have the key slots.
func TestErasureReachesAllLegs(t *testing.T) {
	e := &encryptor{}
	node, b, d := startEncrypted(t, e)
	spec := encryptedSpec(b, lvm.LayoutRAID1, "v", lvm.ID{})
	spec.Class.Layout = lvm.LayoutRAID1
	v, set := raidVolume(t, node, d, spec)
	e.erased = func() { set("Aa 512/16384 recover") } // the leg failed, and lvchange --refresh uses it again
	e.take()
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	time.Sleep(300 * time.Millisecond)
	if got := e.take("erase", "lvremove"); !slices.Equal(got, []string{"erase deleting " + v.ID.LV}) {
		t.Errorf("during the rebuild: %q", got)
	}
	e.mu.Lock()
	e.erased = nil
	e.mu.Unlock()
	set("AA 16384/16384 idle")
	e.awaitRemoval(t)
	if got, want := e.take("erase", "lvremove"), []string{"erase deleting " + v.ID.LV, "lvremove"}; !slices.Equal(got, want) {
		t.Errorf("after it: %q, want %q", got, want)
	}
}

// TestErasureResumes: a driver that starts after one was killed during an erasure repeats it before it removes the volume.
func TestErasureResumes(t *testing.T) {
	node := hosttest.NewNode()
	b, e := hosttest.OnFake(node), &encryptor{node: node, stuck: make(chan struct{})}
	first := startWith(t, node, e, lvm.Machine{})
	v := first.MustCreate(t, encryptedSpec(b, lvm.LayoutLinear, "v", lvm.ID{}))
	hosttest.Must(t, first.Delete(t.Context(), v.ID))
	<-e.stuck
	first.Stop(t)
	e.stuck = nil
	e.take()
	startWith(t, node, e, lvm.Machine{})
	e.awaitRemoval(t)
	if got, want := e.take("erase", "lvremove"), []string{"erase deleting " + v.ID.LV, "lvremove"}; !slices.Equal(got, want) {
		t.Errorf("after the restart: %q, want %q", got, want)
	}
}

// TestSharedHeadersAreNotErased: a snapshot or copy has the volume key too, so the erasure would prove nothing.
func TestSharedHeadersAreNotErased(t *testing.T) {
	e := &encryptor{}
	_, b, d := startEncrypted(t, e)
	origin := d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "origin", lvm.ID{}))
	s := d.MustSnapshot(t, "snap", origin.ID)
	restored := d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "restored", s.ID))
	for _, id := range []lvm.ID{origin.ID, restored.ID} {
		hosttest.Must(t, d.Delete(t.Context(), id))
	}
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), s.ID))
	d.WaitWiped(t)
	if got := e.take("erase"); len(got) > 0 || len(d.Volumes(t)) > 0 {
		t.Errorf("erased %q; left %v", got, d.Volumes(t))
	}
}

// TestWithoutEncryptorVolumesAreZeroed: an admin's session, which has none, wipes an encrypted volume like any other.
func TestWithoutEncryptorVolumesAreZeroed(t *testing.T) {
	node := hosttest.NewNode()
	b, zeroes := hosttest.OnFake(node), &hosttest.ZeroRecorder{Kernel: node.Kernel()}
	d := hosttest.StartOn(t, node, lvm.Config{}, lvm.Machine{Kernel: zeroes})
	v := d.MustCreate(t, encryptedSpec(b, lvm.LayoutLinear, "v", lvm.ID{}))
	d.MustRemove(t, v)
	if want := []string{"0-24 MiB"}; !slices.Equal(zeroes.Spans(), want) {
		t.Errorf("it zeroed %q, want %q: the header too", zeroes.Spans(), want)
	}
}

// TestSnapshotsOfEncryptedVolumes: the mapping of an encrypted volume is suspended while LVM takes a snapshot or clone of it, and of no
// other volume.
func TestSnapshotsOfEncryptedVolumes(t *testing.T) {
	e := &encryptor{}
	_, b, d := startEncrypted(t, e)
	origin := d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "origin", lvm.ID{}))
	plain := d.MustCreate(t, b.Thin("plain", 8*lvm.MiB, lvm.ID{}))
	did := func(what string, want ...string) {
		t.Helper()
		if got := e.take("suspend", "lvcreate", "resume"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	e.take()
	d.MustSnapshot(t, "snap", origin.ID)
	did("snapshot", "suspend", "lvcreate", "resume")
	d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "clone", origin.ID))
	did("clone", "suspend", "lvcreate", "resume")
	d.MustSnapshot(t, "plain snap", plain.ID)
	did("snapshot, unencrypted", "lvcreate")
	d.MustCreate(t, b.Thin("plain clone", 0, plain.ID))
	did("clone, unencrypted", "lvcreate")
}

// TestFailedSnapshotResumesTheVolumeFirst: if LVM leaves the origin suspended, the driver resumes it before the mapping on it: to thaw
// the file system of the mapping, the kernel writes to the origin.
func TestFailedSnapshotResumesTheVolumeFirst(t *testing.T) {
	for what, do := range map[string]func(b hosttest.Fixture, d *hosttest.Driver, origin lvm.ID) error{
		"snapshot": func(_ hosttest.Fixture, d *hosttest.Driver, origin lvm.ID) error {
			_, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snap", Source: origin})
			return err
		},
		"clone": func(b hosttest.Fixture, d *hosttest.Driver, origin lvm.ID) error {
			_, err := d.Create(t.Context(), encryptedSpec(b, lvm.LayoutThin, "clone", origin))
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := &encryptor{}
			node, b, d := startEncrypted(t, e)
			origin := d.MustCreate(t, encryptedSpec(b, lvm.LayoutThin, "origin", lvm.ID{}))
			e.below = d.MustActivate(t, origin)
			e.take()
			node.Fail(lvmtest.Fault{Half: true})
			if err := do(b, d, origin.ID); err == nil {
				t.Error("it succeeds although lvm was killed")
			}
			got := e.take("suspend", "lvcreate", "lvchange", "resume", "blocked")
			if want := []string{"suspend", "lvcreate", "lvchange", "resume"}; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("%q, want %q first", got, want)
			}
		})
	}
}

// TestPlainVolumesRunTheSameCommands: with an Encryptor, volumes without encryption start the LVM processes that they start without one,
// and ask it nothing.
func TestPlainVolumesRunTheSameCommands(t *testing.T) {
	for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutThin} {
		t.Run(string(layout), func(t *testing.T) {
			without, _ := plainLife(t, layout, nil)
			with, calls := plainLife(t, layout, &encryptor{})
			if !slices.Equal(with, without) || !slices.Contains(with, "lvcreate") || !slices.Contains(with, "lvremove") {
				t.Errorf("with an Encryptor the commands are\n%q, and without\n%q", with, without)
			}
			if len(calls) > 0 {
				t.Errorf("the Encryptor was asked %q", calls)
			}
		})
	}
}

// plainLife creates, uses, expands, copies and deletes a volume. It returns the LVM commands, and what e was asked.
func plainLife(t *testing.T, layout lvm.Layout, e *encryptor) (commands, calls []string) {
	t.Helper()
	node, seen := hosttest.NewNode(), &encryptor{}
	b, config := hosttest.OnFake(node), lvm.Config{Observe: seen.observe, ReadyDelay: time.Hour}
	if e != nil {
		config.Encryption = e
	}
	d := hosttest.StartOn(t, node, config, lvm.Machine{})
	spec := b.Spec("v", 8*lvm.MiB)
	if layout == lvm.LayoutThin {
		spec = b.Thin("v", 8*lvm.MiB, lvm.ID{})
	}
	v := d.MustCreate(t, spec)
	d.MustActivate(t, v)
	d.MustExtend(t, v, 16*lvm.MiB)
	if layout == lvm.LayoutThin {
		hosttest.Must(t, d.DeleteSnapshot(t.Context(), d.MustSnapshot(t, "snap", v.ID).ID))
	}
	d.MustRemove(t, v)
	if e != nil {
		calls = e.events
	}
	return seen.events, calls
}
