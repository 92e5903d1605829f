package controller

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

func snapshotRequest(name, volume string) *csi.CreateSnapshotRequest {
	return &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volume, Parameters: map[string]string{
		"csi.storage.k8s.io/volumesnapshot/name": "before-the-upgrade",
	}}
}

func mustSnapshot(t *testing.T, s *Server, name, volume string) *csi.Snapshot {
	t.Helper()
	reply, err := s.CreateSnapshot(t.Context(), snapshotRequest(name, volume))
	if err != nil {
		t.Fatalf("snapshot %s: %v", name, err)
	}
	return reply.GetSnapshot()
}

func TestSnapshot(t *testing.T) {
	s, node := newWideServer(t)
	volume := mustCreate(t, s, in("v", "layout", "thin"))
	before := len(node.Commands())
	snapshot := mustSnapshot(t, s, "snap", volume.GetVolumeId())
	if n := len(node.Commands()) - before; n > 3 {
		t.Errorf("the snapshot took %d LVM commands", n)
	}
	want := &csi.Snapshot{
		SnapshotId: snapshot.GetSnapshotId(), SourceVolumeId: volume.GetVolumeId(), SizeBytes: 1 << 30,
		CreationTime: snapshot.GetCreationTime(), ReadyToUse: true, AccessibleTopology: []*csi.Topology{topologyOf("node-1")},
	}
	if !proto.Equal(snapshot, want) || !snapshot.GetCreationTime().IsValid() || snapshot.GetCreationTime().GetSeconds() <= 0 {
		t.Errorf("got  %v\nwant %v", snapshot, want)
	}
	if again := mustSnapshot(t, s, "snap", volume.GetVolumeId()); !proto.Equal(snapshot, again) {
		t.Errorf("the retry answers %v, the first %v", again, snapshot)
	}
	got, err := s.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
	if err != nil || !proto.Equal(got.GetSnapshot(), snapshot) {
		t.Errorf("got %v, %v", got, err)
	}
	for range 2 {
		if _, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()}); err != nil {
			t.Error(err)
		}
	}
	_, err = s.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
	expectKind(t, err, lvm.KindNotFound)
}

func TestSnapshotRefuses(t *testing.T) {
	s, node := newWideServer(t)
	s.cluster = &cluster{}
	thin := mustCreate(t, s, in("thin", "layout", "thin")).GetVolumeId()
	other := mustCreate(t, s, in("other", "layout", "thin")).GetVolumeId()
	thick := mustCreate(t, s, in("thick")).GetVolumeId()
	taken := mustSnapshot(t, s, "taken", other)
	withParameter := snapshotRequest("s", thin)
	withParameter.Parameters["size"] = "1Gi"
	before := len(node.Commands())
	for _, test := range []struct {
		name string
		req  *csi.CreateSnapshotRequest
		kind lvm.Kind
		says []string
	}{
		{"no name", snapshotRequest("", thin), lvm.KindInvalid, []string{"name"}},
		{"no volume", snapshotRequest("s", ""), lvm.KindInvalid, []string{"source_volume_id"}},
		{"a parameter", withParameter, lvm.KindInvalid, []string{"VolumeSnapshotClass", `"size"`}},
		{"a thick volume", snapshotRequest("s", thick), lvm.KindInvalid, []string{"layout linear", "docs/howto/snapshots.md", "local-thin"}},
		{"a name that another volume's has", snapshotRequest("taken", thin), lvm.KindExists, []string{"taken"}},
		{"garbage", snapshotRequest("s", "garbage"), lvm.KindNotFound, []string{"garbage"}},
		{"a snapshot of a snapshot", snapshotRequest("s", taken.GetSnapshotId()), lvm.KindNotFound, []string{"no volume"}},
		{"never made", snapshotRequest("s", thin+"x"), lvm.KindNotFound, []string{"vg"}},
		{"another node's volume", snapshotRequest("s", elsewhere), lvm.KindNotFound, []string{"node-1", "not on this node"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.CreateSnapshot(t.Context(), test.req)
			expectKind(t, err, test.kind, test.says...)
		})
	}
	if commands := node.Commands()[before:]; len(commands) > 0 {
		t.Errorf("LVM was run: %v", commands)
	}
}

func TestDeleteSnapshotRefuses(t *testing.T) {
	s, _ := newWideServer(t)
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	remove := func(handle string) error {
		_, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: handle})
		return err
	}
	expectKind(t, remove(""), lvm.KindInvalid)
	expectKind(t, remove(elsewhereSnapshot), lvm.KindNotLocal, "node-1")
	for _, handle := range []string{"garbage", volume, "-rf"} { // none of them is a snapshot
		if err := remove(handle); err != nil {
			t.Errorf("%q: %v", handle, err)
		}
	}
	snapshot := mustSnapshot(t, s, "s", volume).GetSnapshotId()
	if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: snapshot}); err == nil {
		t.Error("DeleteVolume deleted a snapshot")
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{}); err != nil || len(list.GetEntries()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestListSnapshots(t *testing.T) {
	s, _ := newWideServer(t)
	one := mustCreate(t, s, in("one", "layout", "thin")).GetVolumeId()
	two := mustCreate(t, s, in("two", "layout", "thin")).GetVolumeId()
	for i := range 4 {
		mustSnapshot(t, s, fmt.Sprintf("one-%d", i), one)
	}
	only := mustSnapshot(t, s, "two-0", two).GetSnapshotId()
	for _, test := range []struct {
		req  *csi.ListSnapshotsRequest
		want int
	}{
		{&csi.ListSnapshotsRequest{}, 5},
		{&csi.ListSnapshotsRequest{SourceVolumeId: one}, 4},
		{&csi.ListSnapshotsRequest{SnapshotId: only}, 1},
		{&csi.ListSnapshotsRequest{SnapshotId: only, SourceVolumeId: one}, 0},
		{&csi.ListSnapshotsRequest{SnapshotId: "garbage"}, 0},
		{&csi.ListSnapshotsRequest{SnapshotId: elsewhereSnapshot}, 0},
		{&csi.ListSnapshotsRequest{SourceVolumeId: elsewhere}, 0},
	} {
		reply, err := s.ListSnapshots(t.Context(), test.req)
		for _, entry := range reply.GetEntries() {
			if places := entry.GetSnapshot().GetAccessibleTopology(); len(places) != 1 || !reaches(places[0], "node-1") {
				t.Errorf("%v: %v", test.req, places)
			}
		}
		if err != nil || len(reply.GetEntries()) != test.want {
			t.Errorf("%v: %d snapshots, want %d (%v)", test.req, len(reply.GetEntries()), test.want, err)
		}
	}
	pages, seen := 0, map[string]bool{}
	for token := ""; pages == 0 || token != ""; pages++ {
		reply, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{MaxEntries: 2, StartingToken: token, SourceVolumeId: one})
		must(t, err)
		for _, entry := range reply.GetEntries() {
			seen[entry.GetSnapshot().GetSnapshotId()] = true
		}
		token = reply.GetNextToken()
	}
	if pages != 2 || len(seen) != 4 {
		t.Errorf("%d snapshots on %d pages", len(seen), pages)
	}
	_, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{StartingToken: "7"})
	if status.Code(err) != codes.Aborted {
		t.Errorf("a bad token: %v", err)
	}
}

// copyRequest asks for a copy of a snapshot or a volume, whichever handle it is.
func copyRequest(name, handle string, size int64, pairs ...string) *csi.CreateVolumeRequest {
	req := in(name, append([]string{"layout", "thin"}, pairs...)...)
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: size}
	req.VolumeContentSource = contentSource(idOf(handle))
	return req
}

func TestCopies(t *testing.T) {
	s, _ := newWideServer(t)
	volume := mustCreate(t, s, in("v", "layout", "thin"))
	snapshot := mustSnapshot(t, s, "snap", volume.GetVolumeId())
	for name, source := range map[string]string{"restore": snapshot.GetSnapshotId(), "clone": volume.GetVolumeId()} {
		req := copyRequest(name, source, 2<<30)
		v := mustCreate(t, s, req)
		if v.GetCapacityBytes() != 2<<30 || v.GetVolumeContext()[api.AttributeSource] != source || !proto.Equal(v.GetContentSource(), req.GetVolumeContentSource()) {
			t.Errorf("%s: %v", name, v)
		}
		if again := mustCreate(t, s, req); !proto.Equal(v, again) {
			t.Errorf("the retry answers %v, the first %v", again, v)
		}
		_, err := s.CreateVolume(t.Context(), in(name, "layout", "thin"))
		expectKind(t, err, lvm.KindExists, name) // without the content it is another request
	}
	// Whatever goes first, nothing else goes with it.
	if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: volume.GetVolumeId()}); err != nil {
		t.Error(err)
	}
	if _, err := s.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()}); err != nil {
		t.Error(err)
	}
	list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 2 {
		t.Fatalf("the copies: %v, %v", list, err)
	}
	for _, entry := range list.GetEntries() {
		if entry.GetVolume().GetContentSource() == nil {
			t.Errorf("listed without its source: %v", entry)
		}
	}
	again := copyRequest("restore", snapshot.GetSnapshotId(), 2<<30) // of a snapshot that is gone by now
	mustCreate(t, s, again)
}

func TestRestoreAndCloneRefuse(t *testing.T) {
	s, _ := newWideServer(t)
	s.cluster = &cluster{}
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	thick := mustCreate(t, s, in("thick")).GetVolumeId()
	snapshot := mustSnapshot(t, s, "snap", volume).GetSnapshotId()
	wrongWay := copyRequest("c", volume, 1<<30)
	wrongWay.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: volume},
	}}
	otherWay := copyRequest("c", snapshot, 1<<30)
	otherWay.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: snapshot},
	}}
	limited := copyRequest("c", snapshot, 1<<20)
	limited.CapacityRange.LimitBytes = 1 << 29
	for _, test := range []struct {
		name string
		req  *csi.CreateVolumeRequest
		kind lvm.Kind
		says []string
	}{
		{"smaller than the snapshot", copyRequest("c", snapshot, 1<<29), lvm.KindOutOfRange, []string{"1 GiB"}},
		{"a limit smaller than the snapshot", limited, lvm.KindOutOfRange, []string{"1 GiB"}},
		{"smaller than the volume", copyRequest("c", volume, 1<<29), lvm.KindOutOfRange, []string{"1 GiB"}},
		{"into a thick layout", copyRequest("c", snapshot, 1<<30, "layout", "linear"), lvm.KindInvalid, []string{"thin", "linear"}},
		{"of a thick volume", copyRequest("c", thick, 1<<30), lvm.KindInvalid, []string{"layout linear", "docs/howto/snapshots.md", "local-thin"}},
		{"into another pool", copyRequest("c", snapshot, 1<<30, "thinPool", "another"), lvm.KindInvalid, []string{"another"}},
		{"a snapshot that never was", copyRequest("c", snapshot+"0", 1<<30), lvm.KindNotFound, []string{"vg"}},
		{"a volume that never was", copyRequest("c", volume+"0", 1<<30), lvm.KindNotFound, []string{"vg"}},
		{"a volume as a snapshot", wrongWay, lvm.KindNotFound, []string{"no snapshot"}},
		{"a snapshot as a volume", otherWay, lvm.KindNotFound, []string{"no volume"}},
		{"another node's snapshot", copyRequest("c", elsewhereSnapshot, 1<<30), lvm.KindInsufficientCapacity, []string{"node-1"}},
		{"another node's volume", copyRequest("c", elsewhere, 1<<30), lvm.KindInsufficientCapacity, []string{"node-1"}},
		{"more than this node has", copyRequest("c", snapshot, 1<<40), lvm.KindOutOfRange, []string{"node-1", "vg", "until the thin pool has capacity"}},
		{"a group that is not here, unlike its source", copyRequest("c", snapshot, 1<<30, "volumeGroup", "vg-9"), lvm.KindOutOfRange, []string{"node-1", "vg-9", "is retried"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.CreateVolume(t.Context(), test.req)
			expectKind(t, err, test.kind, test.says...)
			if err != nil {
				t.Logf("it says: %v", err)
			}
		})
	}
	list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 2 {
		t.Errorf("the refusals left %v, %v", list, err)
	}
}

// TestSnapshotTopology: a snapshot is on its volume's node; a request that excludes this node creates nothing.
func TestSnapshotTopology(t *testing.T) {
	s, _ := newWideServer(t)
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	here, there := topologyOf("node-1"), topologyOf("node-2")
	for what, test := range map[string]struct {
		requisite, preferred []*csi.Topology
		refused              bool
	}{
		"anywhere": {}, "here": {requisite: []*csi.Topology{there, here}, preferred: []*csi.Topology{there}},
		"elsewhere": {requisite: []*csi.Topology{there}, refused: true}, "a zone": {requisite: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}, refused: true},
	} {
		_, err := s.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: what, SourceVolumeId: volume,
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: test.requisite, Preferred: test.preferred}})
		if !test.refused && err != nil {
			t.Errorf("%s: %v", what, err)
		} else if test.refused {
			expectKind(t, err, lvm.KindInsufficientCapacity, "node node-1: the snapshot is requested for")
		}
	}
	if list, err := s.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{}); err != nil || len(list.GetEntries()) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}
