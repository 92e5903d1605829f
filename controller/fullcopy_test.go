package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// copier stands for the transport: it creates the volume at the first call, and completes it when it may.
type copier struct {
	host  *host.Host
	err   error // instead
	ends  bool
	calls int
}

func (c *copier) Copy(ctx context.Context, spec lvm.Spec) error {
	c.calls++
	if c.err != nil {
		return c.err
	}
	move := strings.Repeat("0", 32)
	v, err := c.host.Receive(ctx, lvm.Incoming{Spec: spec, Move: move})
	if err != nil {
		return err
	}
	if !c.ends {
		return lvm.Errorf(lvm.KindBusy, "half of it is here")
	}
	if _, err := c.host.Received(ctx, v.ID, v.UUID, move); err != nil {
		return err
	}
	_, err = c.host.Finish(ctx, v.ID, v.UUID)
	return err
}

func newCopies(t *testing.T, claims ...api.PodClaim) (*Server, *copier, *cluster) {
	t.Helper()
	s, _ := newWideServer(t)
	c, pod := &copier{host: s.volumes.(*host.Host)}, &cluster{claims: claims, restores: map[string]error{}}
	s.fullCopies, s.cluster = c, pod
	return s, c, pod
}

// anywhere asks for a copy of a snapshot in a class with restoreOnOtherNodes.
func anywhere(name, snapshot string, size lvm.Bytes) *csi.CreateVolumeRequest {
	return copyRequest(name, snapshot, int64(size), api.ParameterRestoreOnOtherNodes, "true")
}

// TestFullCopy: while a snapshot of another node is copied, csi-provisioner asks again, and gets the volume when it is complete.
func TestFullCopy(t *testing.T) {
	s, c, _ := newCopies(t)
	req := anywhere("pvc-1", elsewhereSnapshot, 2*lvm.GiB)
	for range 2 {
		_, err := s.CreateVolume(t.Context(), req)
		expectKind(t, err, lvm.KindBusy, "half of it is here")
	}
	if n := volumesOf(t, s); n != 0 {
		t.Errorf("%d volumes are listed before one is complete", n)
	}
	c.ends = true
	v := mustCreate(t, s, req)
	if v.GetCapacityBytes() != 2<<30 || v.GetVolumeContext()[api.AttributeSource] != elsewhereSnapshot || !proto.Equal(v.GetContentSource(), req.GetVolumeContentSource()) ||
		!proto.Equal(v.GetAccessibleTopology()[0], topologyOf("node-1")) {
		t.Errorf("%v", v)
	}
	calls := c.calls
	if again := mustCreate(t, s, req); !proto.Equal(v, again) || c.calls != calls {
		t.Errorf("the retry answers %v after %d calls, the first %v", again, c.calls-calls, v)
	}
	if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Error(err)
	}
}

// TestFullCopyRefused: what does not fit, or what the cluster's objects do not allow, goes to another node, or back to the user.
func TestFullCopyRefused(t *testing.T) {
	wal := claim("wal", 40*lvm.GiB, "vg")
	wal.Parameters["layout"] = "thin"
	away := claim("log", lvm.GiB, "vg")
	away.Node, away.Bound = "node-2", true
	for name, test := range map[string]struct {
		claims []api.PodClaim
		size   lvm.Bytes
		err    error
		want   lvm.Kind
		says   string
		calls  int
	}{
		"more than the node has":                 {nil, 500 * lvm.GiB, nil, lvm.KindInsufficientCapacity, "node-1", 0},
		"with the pod's other claim":             {[]api.PodClaim{wal}, 40 * lvm.GiB, nil, lvm.KindInsufficientCapacity, "on one node", 0},
		"the pod's other claim is elsewhere":     {[]api.PodClaim{away}, lvm.GiB, nil, lvm.KindInsufficientCapacity, "node-2", 0},
		"the claim may not have the snapshot":    {nil, lvm.GiB, lvm.Errorf(lvm.KindInvalid, "not this claim"), lvm.KindInvalid, "not this claim", 1},
		"the claim was deleted":                  {nil, lvm.GiB, lvm.Errorf(lvm.KindNotFound, "no claim"), lvm.KindNotFound, "no claim", 1},
		"no capacity when the copy was to begin": {nil, lvm.GiB, lvm.Errorf(lvm.KindInsufficientCapacity, "full"), lvm.KindInsufficientCapacity, "full", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := newCopies(t, test.claims...)
			c.err = test.err
			_, err := s.CreateVolume(t.Context(), anywhere("pvc-1", elsewhereSnapshot, test.size))
			expectKind(t, err, test.want, test.says)
			if c.calls != test.calls {
				t.Errorf("%d copies were asked for, want %d", c.calls, test.calls)
			}
		})
	}
}

// TestPeerOfFullCopyKeepsItsCapacity: what is free when a full copy is asked for is kept for the pod's empty claim, before the copy can begin and while it
// runs. Else the pod would wait for ever on the node of the copy.
func TestPeerOfFullCopyKeepsItsCapacity(t *testing.T) {
	for name, err := range map[string]error{"the copy runs": nil, "its source does not answer yet": lvm.Errorf(lvm.KindBusy, "no offer")} {
		t.Run(name, func(t *testing.T) {
			thin := map[string]string{"volumeGroup": "vg", "layout": "thin"}
			copied, wal := claim("copy", lvm.GiB, "vg"), claim("wal", lvm.GiB, "vg")
			copied.Parameters = map[string]string{"volumeGroup": "vg", "layout": "thin", api.ParameterRestoreOnOtherNodes: "true"}
			copied.FromSnapshot, wal.Parameters = "s", thin
			s, c, pod := newCopies(t, copied, wal)
			c.err = err
			most, failed := s.volumes.Capacity(t.Context(), lvm.Class{Group: "vg", Layout: lvm.LayoutThin})
			must(t, failed)
			wal.Size = int64(most.Largest - lvm.GiB)
			pod.claims[1] = wal
			req := requestOf(copied, "shop")
			req.VolumeContentSource = anywhere("x", elsewhereSnapshot, lvm.GiB).GetVolumeContentSource()
			_, err := s.CreateVolume(t.Context(), req)
			expectKind(t, err, lvm.KindBusy)
			other := claim("other", lvm.GiB, "vg")
			other.Parameters = thin
			claims := pod.claims
			pod.claims = nil
			_, err = pod.create(t, s, other)
			expectKind(t, err, lvm.KindInsufficientCapacity)
			pod.claims = claims
			if _, err := pod.create(t, s, wal); err != nil {
				t.Error(err)
			}
			c.err, c.ends = nil, true
			mustCreate(t, s, req)
		})
	}
}

// TestWhichCopiesAreFull: only writable volumes of snapshots and volumes on other nodes, in a class that says so.
func TestWhichCopiesAreFull(t *testing.T) {
	s, c, _ := newCopies(t)
	readOnly := anywhere("pvc-2", elsewhereSnapshot, lvm.GiB)
	readOnly.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	for name, req := range map[string]*csi.CreateVolumeRequest{
		"a class without it": copyRequest("pvc-1", elsewhereSnapshot, 1<<30),
		"a class against it": copyRequest("pvc-1", elsewhereSnapshot, 1<<30, api.ParameterRestoreOnOtherNodes, "false"),
		"a read-only copy":   readOnly,
		"a clone without it": copyRequest("pvc-3", elsewhere, 1<<30),
	} {
		_, err := s.CreateVolume(t.Context(), req)
		expectKind(t, err, lvm.KindInsufficientCapacity)
		if c.calls != 0 {
			t.Fatalf("%s became a full copy", name)
		}
	}
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	mustCreate(t, s, anywhere("pvc-4", mustSnapshot(t, s, "snap", volume).GetSnapshotId(), lvm.GiB))
	mustCreate(t, s, in("empty", "layout", "thin", api.ParameterRestoreOnOtherNodes, "true"))
	mustCreate(t, s, anywhere("pvc-5", volume, lvm.GiB))
	if c.calls != 0 {
		t.Error("a snapshot or volume on this node was copied in full")
	}
}

// TestFullCopyOfVolume: a clone of a volume on another node is copied as a restore is, and says what it was cloned from.
func TestFullCopyOfVolume(t *testing.T) {
	s, c, _ := newCopies(t)
	req := anywhere("pvc-1", elsewhere, 2*lvm.GiB)
	_, err := s.CreateVolume(t.Context(), req)
	expectKind(t, err, lvm.KindBusy, "half of it is here")
	c.ends = true
	v := mustCreate(t, s, req)
	if v.GetVolumeContext()[api.AttributeSource] != elsewhere || !proto.Equal(v.GetContentSource(), req.GetVolumeContentSource()) {
		t.Errorf("%v", v)
	}
	calls := c.calls
	if again := mustCreate(t, s, req); !proto.Equal(v, again) || c.calls != calls {
		t.Errorf("the retry answers %v after %d calls, the first %v", again, c.calls-calls, v)
	}
}

// TestRestoreBesideItsSnapshotWithoutCapacity: the node of the snapshot sends the claim back to the scheduler, which may choose another one.
func TestRestoreBesideItsSnapshotWithoutCapacity(t *testing.T) {
	s, c, _ := newCopies(t)
	volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
	snapshot := mustSnapshot(t, s, "snap", volume).GetSnapshotId()
	_, err := s.CreateVolume(t.Context(), anywhere("pvc-1", snapshot, 500*lvm.GiB))
	expectKind(t, err, lvm.KindInsufficientCapacity, "node-1")
	_, err = s.CreateVolume(t.Context(), copyRequest("pvc-1", snapshot, 500<<30))
	expectKind(t, err, lvm.KindOutOfRange)
	_, err = s.CreateVolume(t.Context(), anywhere("pvc-1", snapshot, 512*lvm.MiB))
	expectKind(t, err, lvm.KindOutOfRange, "less than")
	if c.calls != 0 {
		t.Error("a snapshot on this node was copied in full")
	}
}

// TestClassesWithFullCopies: the class is refused where it could not be restored.
func TestClassesWithFullCopies(t *testing.T) {
	s, _, _ := newCopies(t)
	_, err := s.CreateVolume(t.Context(), in("v", api.ParameterRestoreOnOtherNodes, "true"))
	expectKind(t, err, lvm.KindInvalid, "only thin volumes", "layout: thin")
	_, err = s.CreateVolume(t.Context(), in("v", "layout", "thin", api.ParameterRestoreOnOtherNodes, "yes"))
	expectKind(t, err, lvm.KindInvalid, "true, false")
	s.fullCopies = nil
	_, err = s.CreateVolume(t.Context(), in("v", "layout", "thin", api.ParameterRestoreOnOtherNodes, "true"))
	expectKind(t, err, lvm.KindInvalid, "move.enabled")
	mustCreate(t, s, in("v", "layout", "thin", api.ParameterRestoreOnOtherNodes, "false"))
}
