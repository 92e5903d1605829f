package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// groups returns the service of a node with two thin volumes, in two volume groups, and these volumes.
func groups(t *testing.T) (*GroupServer, []string) {
	t.Helper()
	host := lvmtest.NewHost(t, lvmtest.Group{Name: "vg-a", Disks: []lvm.Bytes{4 * lvm.GiB}}, lvmtest.Group{Name: "vg-b", Disks: []lvm.Bytes{4 * lvm.GiB}})
	var handles []string
	for _, group := range []string{"vg-a", "vg-b"} {
		class := lvm.Class{Group: group, Layout: lvm.LayoutThin, Pool: lvm.DefaultPool, Overprovision: 200}
		v, err := host.Create(t.Context(), lvm.Spec{Name: "of " + group, Class: class, Required: lvm.GiB})
		must(t, err)
		if _, err := host.Activate(t.Context(), v.ID, v.UUID); err != nil {
			t.Fatal(err)
		}
		handles = append(handles, v.ID.String())
	}
	return NewGroup("node-1", host, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }, nil), handles
}

// TestGroupSnapshotOfTwoGroups: the calls of a group snapshot's life, each repeated.
func TestGroupSnapshotOfTwoGroups(t *testing.T) {
	s, volumes := groups(t)
	var id string
	for range 2 {
		reply, err := s.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "nightly", SourceVolumeIds: volumes})
		must(t, err)
		made := reply.GetGroupSnapshot()
		if len(made.GetSnapshots()) != 2 || !made.GetReadyToUse() || id != "" && made.GetGroupSnapshotId() != id {
			t.Errorf("made %v, before %q", made, id)
		}
		id = made.GetGroupSnapshotId()
		for _, sn := range made.GetSnapshots() {
			if sn.GetGroupSnapshotId() != id || !slices.Contains(volumes, sn.GetSourceVolumeId()) {
				t.Errorf("a member is %v", sn)
			}
		}
	}
	if found, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id}); err != nil || len(found.GetGroupSnapshot().GetSnapshots()) != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	for range 2 {
		if _, err := s.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id}); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id}); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("a deleted one: %v", err)
	}
}

// TestGroupSnapshotRequests: what is wrong with a request, and the kind of the error.
func TestGroupSnapshotRequests(t *testing.T) {
	s, volumes := groups(t)
	reply, err := s.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "there", SourceVolumeIds: volumes})
	must(t, err)
	id, member := reply.GetGroupSnapshot().GetGroupSnapshotId(), reply.GetGroupSnapshot().GetSnapshots()[0].GetSnapshotId()
	many := make([]string, lvm.MaxGroupMembers+1)
	for i := range many {
		many[i] = fmt.Sprintf("%s-%d", volumes[0], i)
	}
	create := func(r *csi.CreateVolumeGroupSnapshotRequest) error {
		_, err := s.CreateVolumeGroupSnapshot(t.Context(), r)
		return err
	}
	remove := func(id string, snapshots ...string) error {
		_, err := s.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots})
		return err
	}
	get := func(id string, snapshots ...string) error {
		_, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: snapshots})
		return err
	}
	for what, test := range map[string]struct {
		err  error
		kind lvm.Kind
	}{
		"no name":              {create(&csi.CreateVolumeGroupSnapshotRequest{SourceVolumeIds: volumes}), lvm.KindInvalid},
		"no volume":            {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "a"}), lvm.KindInvalid},
		"too many volumes":     {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "a", SourceVolumeIds: many}), lvm.KindInvalid},
		"a snapshot":           {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "a", SourceVolumeIds: []string{member}}), lvm.KindNotFound},
		"another driver's":     {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "a", SourceVolumeIds: []string{"vol-1"}}), lvm.KindNotFound},
		"a parameter":          {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "a", SourceVolumeIds: volumes, Parameters: map[string]string{"a": "b"}}), lvm.KindInvalid},
		"other volumes":        {create(&csi.CreateVolumeGroupSnapshotRequest{Name: "there", SourceVolumeIds: volumes[:1]}), lvm.KindExists},
		"get without a handle": {get(""), lvm.KindInvalid},
		"get a snapshot":       {get(member), lvm.KindNotFound},
		"get other members":    {get(id, member), lvm.KindInvalid},
		"delete without one":   {remove(""), lvm.KindInvalid},
		"delete other members": {remove(id, member), lvm.KindInvalid},
	} {
		if test.err == nil || lvm.KindOf(test.err) != test.kind {
			t.Errorf("%s: %v", what, test.err)
		}
	}
	if err := remove("not-a-handle"); err != nil {
		t.Errorf("delete what cannot exist: %v", err)
	}
}

// TestNeededGroupSnapshotIsNotDeleted: a content of the cluster that needs a group snapshot keeps it, whoever asks for its deletion.
func TestNeededGroupSnapshotIsNotDeleted(t *testing.T) {
	s, volumes := groups(t)
	reply, err := s.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "nightly", SourceVolumeIds: volumes})
	must(t, err)
	id := reply.GetGroupSnapshot().GetGroupSnapshotId()
	objects := &cluster{owned: map[string]error{id: lvm.Errorf(lvm.KindConflict, "a content has it")}}
	s.cluster = objects
	remove := func() error {
		_, err := s.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id})
		return err
	}
	expectKind(t, remove(), lvm.KindConflict, "a content has it", "node-1")
	if _, err := s.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	clear(objects.owned)
	if err := remove(); err != nil {
		t.Error(err)
	}
	objects.owned[id] = lvm.Errorf(lvm.KindBusy, "no answer")
	if err := remove(); err != nil {
		t.Errorf("repeated: %v", err)
	}
}
