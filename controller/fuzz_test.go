package controller

import (
	"math"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// checkAnswer fails unless an error is one that its caller can do something about: LVM was asked for nothing that it failed at.
func checkAnswer(t *testing.T, err error, kinds ...lvm.Kind) {
	t.Helper()
	if err != nil && !slices.Contains(kinds, lvm.KindOf(err)) {
		t.Fatalf("kind %d: %v", lvm.KindOf(err), err)
	}
}

// FuzzCreateVolume: whatever a request says, it is refused with a reason, or makes the volume that it asks for; the same request
// again is answered with the same volume.
func FuzzCreateVolume(f *testing.F) {
	f.Add("pvc-1", int64(5<<20), int64(0), "layout", "thin", "xfs", "bind", api.TopologyKey, "node-1", "", "shop", "data")
	f.Add("a/b", int64(-1), int64(1), "volumeGroup", "@any", "", "noatime", "zone", "a", elsewhereSnapshot, "", "")
	f.Add("\n", int64(0), int64(1<<62), "stripes", "2", "btrfs", "", "", "", elsewhere, "a/b", "\x00")
	f.Add("..", int64(1), int64(1), "mkfsOptions", "-m 1", "ext4", "ro,", api.TopologyKey, "node-2", "/", "..", "-")
	f.Fuzz(func(t *testing.T, name string, required, limit int64, key, value, fsType, option, segment, place, source, namespace, claim string) {
		s, node := newTestServer(t)
		req := &csi.CreateVolumeRequest{
			Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit},
			VolumeCapabilities: []*csi.VolumeCapability{mountCapability(fsType, writer)},
			Parameters:         map[string]string{"volumeGroup": "vg-sata", api.ParameterClaimNamespace: namespace, api.ParameterClaimName: claim, key: value},
		}
		if option != "" {
			req.VolumeCapabilities[0].GetMount().MountFlags = []string{option}
		}
		if segment != "" {
			req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{segment: place}}}}
		}
		if source != "" {
			req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: source}}}
		}
		before := len(node.Commands())
		reply, err := s.CreateVolume(t.Context(), req)
		if err != nil {
			checkAnswer(t, err, lvm.KindInvalid, lvm.KindOutOfRange, lvm.KindInsufficientCapacity, lvm.KindNotFound, lvm.KindExists)
			if n := len(node.Commands()) - before; n != 0 {
				t.Fatalf("%d commands were run for what was refused: %v", n, err)
			}
			return
		}
		v := reply.GetVolume()
		if v.GetCapacityBytes() < required || limit > 0 && v.GetCapacityBytes() > limit || segment != "" && (segment != api.TopologyKey || place != "node-1") {
			t.Fatalf("%v was answered with %v", req, v)
		}
		if again := mustCreate(t, s, req); again.GetVolumeId() != v.GetVolumeId() || len(v.GetVolumeId()) > 128 {
			t.Fatalf("made as %q, and found as %q", v.GetVolumeId(), again.GetVolumeId())
		}
	})
}

// FuzzHandles: no handle, and no token, makes the driver touch a volume that has another one, or fail.
func FuzzHandles(f *testing.F) {
	for _, seed := range []string{"", "/", elsewhere, elsewhereSnapshot, "vg-nvme/pvc-1", "000000-0000-0000-0000-0000-0000-000001/../pvc-1", "\x00", "a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, handle string) {
		s, node := newTestServer(t)
		made := mustCreate(t, s, wanted())
		if handle == made.GetVolumeId() {
			return
		}
		before := len(node.Commands())
		usual := []lvm.Kind{lvm.KindInvalid, lvm.KindNotFound}
		_, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		checkAnswer(t, err, lvm.KindInvalid, lvm.KindNotLocal)
		_, err = s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: handle})
		checkAnswer(t, err, lvm.KindInvalid, lvm.KindNotLocal)
		_, err = s.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: handle})
		checkAnswer(t, err, usual...)
		_, err = s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: handle})
		checkAnswer(t, err, usual...)
		_, err = s.ControllerExpandVolume(t.Context(), expandRequest(handle, 6<<30, 0))
		checkAnswer(t, err, usual...)
		_, err = s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: handle, VolumeCapabilities: wanted().GetVolumeCapabilities()})
		checkAnswer(t, err, usual...)
		if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: handle}); err == nil && len(list.GetEntries()) > 1 {
			t.Errorf("one volume is listed as %v", list.GetEntries())
		}
		if n := len(node.Commands()) - before; n != 0 || volumesOf(t, s) != 1 {
			t.Errorf("%q: %d commands were run, %d volumes are left", handle, n, volumesOf(t, s))
		}
	})
}

// FuzzPodClaims: whatever the pod's other claim says, this one is made here or goes elsewhere, and its room is not promised twice.
func FuzzPodClaims(f *testing.F) {
	f.Add("b", "b-uid", "node-1", int64(20<<30), false, "ReadWriteOnce", "volumeGroup", "vg-nvme")
	f.Add("b", "", "node-2", int64(-1), true, "ReadWriteMany", "layout", "thin")
	f.Add("a", "a-uid", "node-1\n", int64(math.MaxInt64), false, "", "csi.storage.k8s.io/fstype", "xfs")
	f.Fuzz(func(t *testing.T, name, uid, node string, size int64, block bool, mode, key, value string) {
		a := claim("a", 25*lvm.GiB, "vg-nvme")
		peer := api.PodClaim{Name: name, UID: uid, Node: node, Size: size, Block: block, AccessModes: []string{mode},
			Parameters: map[string]string{"volumeGroup": "vg-nvme", key: value}}
		s, pod, _ := newPod(t, a, peer)
		_, err := pod.create(t, s, a)
		checkAnswer(t, err, lvm.KindInsufficientCapacity)
		if room := published(t, s, "vg-nvme"); err == nil && room > 15*lvm.GiB || room < 0 {
			t.Errorf("%s are published", room)
		}
	})
}

// FuzzTopology: a volume is made here only for a topology that is this node's alone, whatever the node is called.
func FuzzTopology(f *testing.F) {
	f.Add("node-1", api.TopologyKey, "node-1", "", "")
	f.Add("node-1", api.TopologyKey, "node-1", "zone", "a")
	f.Add("", api.TopologyKey, "", "", "")
	f.Add("a\nb", "", "", api.TopologyKey, "a\nb")
	f.Fuzz(func(t *testing.T, node, key1, value1, key2, value2 string) {
		topology := &csi.Topology{Segments: map[string]string{key1: value1, key2: value2}}
		err := checkTopology(&csi.TopologyRequirement{Requisite: []*csi.Topology{topology}}, node)
		mine := len(topology.GetSegments()) == 1 && topology.GetSegments()[api.TopologyKey] == node && (key1 == api.TopologyKey || key2 == api.TopologyKey)
		if (err == nil) != mine {
			t.Errorf("node %q, %v: %v", node, topology.GetSegments(), err)
		}
		checkAnswer(t, err, lvm.KindInsufficientCapacity)
	})
}
