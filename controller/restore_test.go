package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

const restoreClaim = "shop/data-pg-0 "

// newRestores is a server in a cluster, and the handle of a snapshot on its node.
func newRestores(t *testing.T) (s *Server, pod *cluster, node *lvmtest.Node, snapshot string) {
	t.Helper()
	s, node = newWideServer(t)
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	snapshot = mustSnapshot(t, s, "snap", volume).GetSnapshotId()
	pod = &cluster{restores: map[string]error{}}
	s.cluster = pod
	return s, pod, node, snapshot
}

// Another node's token can write the handle of this node's snapshot into an object, and a tenant has it restored: what the
// cluster's objects do not give to the claim is not copied.
func TestRestoreRefusesSnapshotOfAnotherClaim(t *testing.T) {
	for name, why := range map[string]error{
		"it is another's":       lvm.Errorf(lvm.KindInvalid, "no snapshot of this node's"),
		"it is not known yet":   lvm.Errorf(lvm.KindBusy, "no snapshot of this node's"),
		"the claim was deleted": lvm.Errorf(lvm.KindNotFound, "no snapshot of this node's"),
	} {
		t.Run(name, func(t *testing.T) {
			s, pod, _, snapshot := newRestores(t)
			before := volumesOf(t, s)
			pod.restores[restoreClaim+"1 "+snapshot] = why
			_, err := s.CreateVolume(t.Context(), copyRequest("pvc-1", snapshot, 1<<30))
			expectKind(t, err, lvm.KindOf(why), "no snapshot of this node's", "node-1")
			if n := volumesOf(t, s); n != before {
				t.Errorf("%d volumes, want %d", n, before)
			}
			clear(pod.restores)
			made := mustCreate(t, s, copyRequest("pvc-1", snapshot, 1<<30))
			// The claim is deleted before the provisioner knows of the volume: it must get it, or it never deletes it.
			pod.restores[restoreClaim+"1 "+snapshot] = why
			if again := mustCreate(t, s, copyRequest("pvc-1", snapshot, 1<<30)); again.GetVolumeId() != made.GetVolumeId() {
				t.Errorf("made as %s, and found as %s", made.GetVolumeId(), again.GetVolumeId())
			}
		})
	}
}

// Without the claim's name nothing can be held against it. A clone, and a node without a cluster, ask nothing.
func TestWhichCopiesReadTheCluster(t *testing.T) {
	s, pod, node, snapshot := newRestores(t)
	unnamed := copyRequest("pvc-1", snapshot, 1<<30)
	delete(unnamed.Parameters, api.ParameterClaimName)
	delete(unnamed.Parameters, api.ParameterClaimNamespace)
	_, err := s.CreateVolume(t.Context(), unnamed)
	expectKind(t, err, lvm.KindInvalid, "--extra-create-metadata")

	_, err = s.CreateVolume(t.Context(), copyRequest("pvc-2", elsewhereSnapshot, 1<<30))
	expectKind(t, err, lvm.KindInsufficientCapacity, "the source is not on node") // it goes to the node that has it
	_, err = s.CreateVolume(t.Context(), copyRequest("pvc-2", snapshot+"0", 1<<30))
	expectKind(t, err, lvm.KindNotFound)

	list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	volume := list.GetEntries()[0].GetVolume().GetVolumeId()
	pod.restores[restoreClaim+"3 "+volume] = lvm.Errorf(lvm.KindInvalid, "a clone was asked about")
	mustCreate(t, s, copyRequest("pvc-3", volume, 1<<30))

	pod.restores[restoreClaim+"4 "+snapshot] = lvm.Errorf(lvm.KindInvalid, "there is no cluster")
	s.cluster = nil
	before := len(node.Commands())
	mustCreate(t, s, copyRequest("pvc-4", snapshot, 1<<30))
	alone := len(node.Commands()) - before
	s.cluster, before = pod, len(node.Commands())
	mustCreate(t, s, copyRequest("pvc-5", snapshot, 1<<30))
	if n := len(node.Commands()) - before; n != alone {
		t.Errorf("the question costs %d LVM commands", n-alone)
	}
}

// TestEmptyVolumeIsRefused: a claim that asked for data gets no empty volume in its place. A volume that was made before stays: csi-provisioner has to
// learn of it, or it never deletes it.
func TestEmptyVolumeIsRefused(t *testing.T) {
	s, pod, _, snapshot := newRestores(t)
	why := lvm.Errorf(lvm.KindInvalid, "its data source was dropped")
	pod.empties = map[string]error{restoreClaim + "1": why}
	before := volumesOf(t, s)
	request := copyRequest("pvc-1", snapshot, 1<<30)
	request.VolumeContentSource = nil
	_, err := s.CreateVolume(t.Context(), request)
	expectKind(t, err, lvm.KindInvalid, "its data source was dropped", "node-1")
	if n := volumesOf(t, s); n != before {
		t.Errorf("%d volumes, want %d", n, before)
	}
	mustCreate(t, s, copyRequest("pvc-1", snapshot, 1<<30)) // a copy is not empty
	other := copyRequest("pvc-2", snapshot, 1<<30)
	other.VolumeContentSource = nil
	made := mustCreate(t, s, other)
	pod.empties[restoreClaim+"2"] = why
	if again := mustCreate(t, s, other); again.GetVolumeId() != made.GetVolumeId() {
		t.Errorf("made as %s, and found as %s", made.GetVolumeId(), again.GetVolumeId())
	}
}
