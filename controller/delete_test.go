package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestDelete(t *testing.T) {
	s, _ := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	remove := func(handle string) error {
		_, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		return err
	}
	expectKind(t, remove(""), lvm.KindInvalid)
	expectKind(t, remove(elsewhere), lvm.KindNotLocal, "node-1")
	for _, handle := range []string{"garbage", "vg-nvme/pvc-1", "../../etc", "-rf", strings.Repeat("x", 300), volume.GetVolumeId() + "/x"} {
		if err := remove(handle); err != nil {
			t.Errorf("delete %q: %v; want OK, for it cannot exist", handle, err)
		}
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 1 {
		t.Fatalf("the volume did not survive: %v, %v", list, err)
	}
	for range 2 {
		if err := remove(volume.GetVolumeId()); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 0 {
		t.Errorf("the volume is still listed: %v, %v", list, err)
	}
}

// TestDeleteKeepsVolumeThatAPersistentVolumeNeeds: while the cluster refuses or gives no answer, a volume keeps its data. Where the
// node has no data of it, the cluster does not matter.
func TestDeleteKeepsVolumeThatAPersistentVolumeNeeds(t *testing.T) {
	for name, why := range map[string]error{
		"another PersistentVolume has it": lvm.Errorf(lvm.KindConflict, "my-pv has it"),
		"the API server does not answer":  lvm.Errorf(lvm.KindBusy, "my-pv may have it"),
	} {
		t.Run(name, func(t *testing.T) {
			s, node := newTestServer(t)
			handle := mustCreate(t, s, wanted()).GetVolumeId()
			s.cluster = &cluster{owned: map[string]error{handle: why}}
			remove := func() error {
				_, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
				return err
			}
			before := node.Groups()
			expectKind(t, remove(), lvm.KindOf(why), "node-1", "my-pv")
			if changed := cmp.Diff(before, node.Groups()); changed != "" || volumesOf(t, s) != 1 {
				t.Errorf("the volume was changed:\n%s", changed)
			}
			s.cluster = &cluster{}
			must(t, remove())
			s.cluster = &cluster{owned: map[string]error{handle: why}}
			if err := remove(); err != nil {
				t.Errorf("the volume was deleted before, and now: %v", err)
			}
		})
	}
}

// TestDeleteKeepsSnapshotThatAContentNeeds: the same for snapshots.
func TestDeleteKeepsSnapshotThatAContentNeeds(t *testing.T) {
	s, _ := newWideServer(t)
	handle := mustSnapshot(t, s, "snap", mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()).GetSnapshotId()
	why := lvm.Errorf(lvm.KindConflict, "my-content has it")
	s.cluster = &cluster{owned: map[string]error{handle: why}}
	remove := func() error {
		_, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: handle})
		return err
	}
	expectKind(t, remove(), lvm.KindConflict, "node-1", "my-content")
	s.cluster = &cluster{}
	if err := remove(); err != nil {
		t.Fatalf("nothing needs it: %v", err)
	}
	s.cluster = &cluster{owned: map[string]error{handle: why}}
	if err := remove(); err != nil {
		t.Errorf("it is deleted already: %v", err)
	}
}
