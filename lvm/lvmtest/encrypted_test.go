package lvmtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// encryptor records what a Host asks of it, and the LVM commands in between.
type encryptor struct {
	node *Node

	mu     sync.Mutex
	events []string
	inUse  bool // a pod uses the mapping
	fails  int  // the next so many erasures fail
	stuck  chan struct{}
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

func (e *encryptor) Mapping(string) (string, uint64, bool, error) {
	e.note("mapping")
	return "", 0, false, nil
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
	return func() error { e.note("resume"); return nil }, nil
}

func (e *encryptor) Erase(ctx context.Context, v lvm.Volume, device string, check func() error) error {
	e.mu.Lock()
	stuck, fail := e.stuck, e.fails > 0
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
	return nil
}

func encryptedSpec(b Fixture, layout lvm.Layout, name string, source lvm.ID) lvm.Spec {
	spec := b.spec(name, 8*lvm.MiB)
	if layout == lvm.LayoutThin {
		spec = b.thin(name, 8*lvm.MiB, source)
	}
	spec.Class.Encryption = lvm.EncryptionLUKS2
	return spec
}

// TestErasure: the keys of a deleted volume are destroyed under its state tag, and its data are not zeroed; a failure is retried. It is
// not deleted while its mapping is in use.
func TestErasure(t *testing.T) {
	for _, layout := range []lvm.Layout{lvm.LayoutLinear, lvm.LayoutThin} {
		t.Run(string(layout), func(t *testing.T) {
			node := newNode()
			b, e, zeroes := fakeFixture(node), &encryptor{node: node, fails: 2}, &zeroing{kernel: kernel{node}}
			h := node.hostOn(lvm.Config{Cluster: Cluster, Encryption: e, Observe: e.observe}, lvm.Machine{Kernel: zeroes})
			must(t, h.Start(t.Context()))
			d := &Driver{Host: h}
			defer d.close(t)
			v := d.create(t, encryptedSpec(b, layout, "v", lvm.ID{}))
			if _, err := d.ActivateAs(t.Context(), v.ID, v.UUID, lvm.EncryptionLUKS2); err != nil { // tags it as ready
				t.Fatal(err)
			}
			e.inUse = true
			wantKind(t, "deletion in use", d.Delete(t.Context(), v.ID), lvm.KindInUse)
			e.inUse = false
			e.take()
			must(t, d.Delete(t.Context(), v.ID))
			d.waitWiped(t)
			erasure := "erase deleting " + v.ID.LV
			if got, want := e.take("unstage", "lvchange", "erase", "lvremove"), []string{"unstage", "lvchange", erasure, erasure, erasure, "lvremove"}; !slices.Equal(got, want) {
				t.Errorf("the deletion did %q, want %q", got, want)
			}
			if len(zeroes.spans) > 0 {
				t.Errorf("it zeroed %q", zeroes.spans)
			}
		})
	}
}

// TestErasureResumes: a driver that starts after one was killed during an erasure repeats it before it removes the volume.
func TestErasureResumes(t *testing.T) {
	node := newNode()
	b, e := fakeFixture(node), &encryptor{node: node, stuck: make(chan struct{})}
	first := &Driver{Host: node.hostOn(lvm.Config{Cluster: Cluster, Encryption: e, Observe: e.observe}, lvm.Machine{})}
	must(t, first.Start(t.Context()))
	v := first.create(t, encryptedSpec(b, lvm.LayoutLinear, "v", lvm.ID{}))
	must(t, first.Delete(t.Context(), v.ID))
	<-e.stuck
	first.close(t)
	e.stuck = nil
	e.take()
	next := &Driver{Host: node.hostOn(lvm.Config{Cluster: Cluster, Encryption: e, Observe: e.observe}, lvm.Machine{})}
	must(t, next.Start(t.Context()))
	defer next.close(t)
	next.waitWiped(t)
	if got, want := e.take("erase", "lvremove"), []string{"erase deleting " + v.ID.LV, "lvremove"}; !slices.Equal(got, want) {
		t.Errorf("after the restart: %q, want %q", got, want)
	}
}

// TestSharedHeadersAreNotErased: a snapshot or copy has the volume key too, so the erasure would prove nothing.
func TestSharedHeadersAreNotErased(t *testing.T) {
	node := newNode()
	b, e := fakeFixture(node), &encryptor{node: node}
	d := &Driver{Host: node.hostOn(lvm.Config{Cluster: Cluster, Encryption: e, Observe: e.observe}, lvm.Machine{})}
	must(t, d.Start(t.Context()))
	defer d.close(t)
	origin := d.create(t, encryptedSpec(b, lvm.LayoutThin, "origin", lvm.ID{}))
	s := d.snapshot(t, "snap", origin.ID)
	restored := d.create(t, encryptedSpec(b, lvm.LayoutThin, "restored", s.ID))
	for _, id := range []lvm.ID{origin.ID, restored.ID} {
		must(t, d.Delete(t.Context(), id))
	}
	must(t, d.DeleteSnapshot(t.Context(), s.ID))
	d.waitWiped(t)
	if got := e.take("erase"); len(got) > 0 || len(d.volumes(t)) > 0 {
		t.Errorf("erased %q; left %v", got, d.volumes(t))
	}
}

// TestWithoutEncryptorVolumesAreZeroed: an admin's session, which has none, wipes an encrypted volume like any other.
func TestWithoutEncryptorVolumesAreZeroed(t *testing.T) {
	node := newNode()
	b, zeroes := fakeFixture(node), &zeroing{kernel: kernel{node}}
	d := &Driver{Host: node.hostOn(lvm.Config{Cluster: Cluster}, lvm.Machine{Kernel: zeroes})}
	must(t, d.Start(t.Context()))
	defer d.close(t)
	v := d.create(t, encryptedSpec(b, lvm.LayoutLinear, "v", lvm.ID{}))
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
	if want := []string{"0-24 MiB"}; !slices.Equal(zeroes.spans, want) {
		t.Errorf("it zeroed %q, want %q: the header too", zeroes.spans, want)
	}
}

// TestSnapshotsOfEncryptedVolumes: the mapping of an encrypted volume is suspended while LVM takes a snapshot or clone of it, and of no
// other volume.
func TestSnapshotsOfEncryptedVolumes(t *testing.T) {
	node := newNode()
	b, e := fakeFixture(node), &encryptor{node: node}
	d := &Driver{Host: node.hostOn(lvm.Config{Cluster: Cluster, Encryption: e, Observe: e.observe, ReadyDelay: time.Hour}, lvm.Machine{})}
	must(t, d.Start(t.Context()))
	defer d.close(t)
	origin := d.create(t, encryptedSpec(b, lvm.LayoutThin, "origin", lvm.ID{}))
	plain := d.create(t, b.thin("plain", 8*lvm.MiB, lvm.ID{}))
	for what, test := range map[string]struct {
		make func() lvm.ID
		want []string
	}{
		"snapshot":              {func() lvm.ID { return d.snapshot(t, "snap", origin.ID).ID }, []string{"suspend", "lvcreate", "resume"}},
		"clone":                 {func() lvm.ID { return d.create(t, encryptedSpec(b, lvm.LayoutThin, "clone", origin.ID)).ID }, []string{"suspend", "lvcreate", "resume"}},
		"snapshot, unencrypted": {func() lvm.ID { return d.snapshot(t, "plain snap", plain.ID).ID }, []string{"lvcreate"}},
		"clone, unencrypted":    {func() lvm.ID { return d.create(t, b.thin("plain clone", 0, plain.ID)).ID }, []string{"lvcreate"}},
	} {
		e.take()
		test.make()
		if got := e.take("suspend", "lvcreate", "resume"); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
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
	node, seen := newNode(), &encryptor{}
	b, config := fakeFixture(node), lvm.Config{Cluster: Cluster, Observe: seen.observe, ReadyDelay: time.Hour}
	if e != nil {
		config.Encryption = e
	}
	d := &Driver{Host: node.hostOn(config, lvm.Machine{})}
	must(t, d.Start(t.Context()))
	defer d.close(t)
	spec := b.spec("v", 8*lvm.MiB)
	if layout == lvm.LayoutThin {
		spec = b.thin("v", 8*lvm.MiB, lvm.ID{})
	}
	v := d.create(t, spec)
	if _, err := d.ActivateAs(t.Context(), v.ID, v.UUID, lvm.EncryptionNone); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0); err != nil {
		t.Fatal(err)
	}
	if layout == lvm.LayoutThin {
		must(t, d.DeleteSnapshot(t.Context(), d.snapshot(t, "snap", v.ID).ID))
	}
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
	if e != nil {
		calls = e.events
	}
	return seen.events, calls
}
