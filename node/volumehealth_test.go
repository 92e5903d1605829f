package node

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestNodeHealth: the health calls answer from the conditions, for a volume that is not in use, too, and change nothing. What cannot be
// read is an error, not a recovery.
func TestNodeHealth(t *testing.T) {
	f := newFake()
	f.active = false
	s := f.server()
	var found []lvm.Condition
	var failure error
	s.conditions = func(context.Context) (csihealth.Found, error) { return csihealth.Found{Conditions: found}, failure }
	for _, test := range []struct {
		what, handle string
		condition    lvm.ConditionType // of the volume; "": none
		kind         lvm.Kind          // 0: an answer
		want         csi.VolumeHealthErrorType
	}{
		{what: "healthy", handle: testID.String()},
		{what: "degraded", handle: testID.String(), condition: lvm.ConditionVolumeDegraded, want: csi.VolumeHealthErrorType_DEGRADED},
		{what: "its user's business", handle: testID.String(), condition: lvm.ConditionSignatureFound},
		{what: "another one's", handle: testVG + "/else", kind: lvm.KindNotFound},
		{what: "garbage", handle: "garbage", kind: lvm.KindNotFound},
		{what: "no volume", kind: lvm.KindInvalid},
	} {
		found = nil
		if test.condition != "" {
			found = []lvm.Condition{{Type: test.condition, Volume: lvm.Volume{ID: testID, UUID: "uuid"}}}
		}
		reply, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: test.handle})
		statuses := reply.GetVolumeHealth().GetHealthStatuses()
		switch {
		case test.kind != 0:
			if err == nil || lvm.KindOf(err) != test.kind {
				t.Errorf("%s: %v, %v", test.what, reply, err)
			}
		case err != nil, reply.GetVolumeHealth().GetVolumeId() != test.handle, (test.want != 0) != (len(statuses) == 1), test.want != 0 && statuses[0].GetStatus() != test.want:
			t.Errorf("%s: %v, %v", test.what, reply, err)
		}
	}

	found = []lvm.Condition{{Type: lvm.ConditionDiskUnresponsive, Text: "a disk"}, {Type: lvm.ConditionVolumeDegraded, Volume: lvm.Volume{ID: testID, UUID: "uuid"}}}
	storage := func() ([]*csi.NodeGetStorageHealthResponse_StorageBackendHealth, error) {
		reply, err := s.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
		return reply.GetBackendHealth(), err
	}
	if health, err := storage(); err != nil || len(health) != 1 || health[0].GetReason() != "DiskUnresponsive" {
		t.Errorf("storage: %v, %v", health, err)
	}
	failure = errors.New("no answer")
	if health, err := storage(); !errors.Is(err, failure) || health != nil {
		t.Errorf("storage, unknown: %v, %v", health, err)
	}
	if reply, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: testID.String()}); !errors.Is(err, failure) {
		t.Errorf("unknown: %v, %v", reply, err)
	}
	s.conditions = nil
	if _, err := storage(); status.Code(err) != codes.Unimplemented {
		t.Errorf("not claimed: %v", err)
	}
	f.expect(t)
}

// TestHealthOfHealthyVolume: the calls about one volume after the other share a reading, and none reads the disks again.
func TestHealthOfHealthyVolume(t *testing.T) {
	f := newFake()
	s := f.server()
	checks, lists := 0, 0
	recent := csihealth.NewRecent(func(context.Context) ([]lvm.Condition, error) { checks++; return nil, nil },
		func(ctx context.Context) ([]lvm.Volume, error) { lists++; return f.List(ctx) })
	s.conditions = recent.Found
	for range 100 {
		if _, err := s.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: testID.String()}); err != nil {
			t.Fatal(err)
		}
	}
	if f.lookups != 0 || checks != 1 || lists != 1 {
		t.Errorf("%d lookups, %d checks, %d lists", f.lookups, checks, lists)
	}
	f.expect(t)
}

// TestHealthCapabilities: the service claims the health calls if it has conditions.
func TestHealthCapabilities(t *testing.T) {
	s := newFake().server()
	s.conditions = func(context.Context) (csihealth.Found, error) { return csihealth.Found{}, nil }
	can, err := s.NodeGetCapabilities(t.Context(), nil)
	if err != nil || len(can.GetCapabilities()) != 6 {
		t.Errorf("got %v, %v", can, err)
	}
}
