package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestVolumeHealth: a healthy volume has no status; one with a condition has it, even if its group is not here; an unknown one is not
// found; what cannot be read is an error, not a recovery.
func TestVolumeHealth(t *testing.T) {
	s, node := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	lost, err := lvm.ParseID(elsewhere)
	must(t, err)
	var failure error
	known := map[lvm.ID]bool{}
	s.conditions = func(context.Context) (csihealth.Found, error) {
		return csihealth.Found{Volumes: known, Conditions: []lvm.Condition{
			{Type: lvm.ConditionVolumeDataMissing, Volume: lvm.Volume{ID: lost, UUID: "u"}, Text: "its group is not on the node"}}}, failure
	}
	ask := func(handle string) (*csi.VolumeHealth, error) {
		reply, err := s.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
		return reply.GetVolumeHealth(), err
	}
	before := len(node.Commands())
	if health, err := ask(volume.GetVolumeId()); err != nil || health.GetVolumeId() != volume.GetVolumeId() || len(health.GetHealthStatuses()) != 0 {
		t.Errorf("healthy: %v, %v", health, err)
	}
	health, err := ask(elsewhere)
	if err != nil || len(health.GetHealthStatuses()) != 1 || health.GetHealthStatuses()[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE {
		t.Errorf("lost: %v, %v", health, err)
	}
	_, err = ask("AAAAAA-bbbb-cccc-dddd-eeee-ffff-GGGGGG/pvc-2")
	expectKind(t, err, lvm.KindNotFound)
	_, err = ask("garbage")
	expectKind(t, err, lvm.KindNotFound)
	_, err = ask("")
	expectKind(t, err, lvm.KindInvalid)
	last := lvm.ID{VG: lost.VG, LV: "pvc-listed"}
	known[last] = true
	if health, err := ask(last.String()); err != nil || len(health.GetHealthStatuses()) != 0 {
		t.Errorf("one of the last reading: %v, %v", health, err)
	}
	failure = errors.New("no answer")
	if health, err := ask(volume.GetVolumeId()); !errors.Is(err, failure) || health != nil {
		t.Errorf("unknown: %v, %v", health, err)
	}
	if _, err := s.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{}); !errors.Is(err, failure) {
		t.Errorf("unknown: %v", err)
	}
	if after := len(node.Commands()); after != before {
		t.Errorf("%d processes", after-before)
	}
	s.conditions = nil
	if _, err := ask(volume.GetVolumeId()); status.Code(err) != codes.Unimplemented {
		t.Errorf("not claimed: %v", err)
	}
}

// TestListVolumeHealthByPages: the list has the volumes with a condition, in pages, and a page is small enough for a gRPC client.
func TestListVolumeHealthByPages(t *testing.T) {
	s, _ := newTestServer(t)
	const count = maxHealthPage + 5
	var found []lvm.Condition
	for i := range count {
		id := lvm.ID{VG: "AAAAAA-bbbb-cccc-dddd-eeee-ffff-GGGGGG", LV: fmt.Sprintf("v%04d", (i*11)%count)}
		found = append(found, lvm.Condition{Type: lvm.ConditionVolumeDegraded, Volume: lvm.Volume{ID: id, UUID: "u"}})
	}
	s.conditions = func(context.Context) (csihealth.Found, error) { return csihealth.Found{Conditions: found}, nil }
	for limit, pages := range map[int32]int{0: 2, 1000: 2, 50: 3} {
		var seen []string
		token, page := "", 0
		for ; page == 0 || token != ""; page++ {
			reply, err := s.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{MaxEntries: limit, StartingToken: token})
			must(t, err)
			if n := len(reply.GetEntries()); n > maxHealthPage || limit > 0 && n > int(limit) {
				t.Errorf("a page of %d", n)
			}
			for _, entry := range reply.GetEntries() {
				seen = append(seen, entry.GetVolumeId())
			}
			token = reply.GetNextToken()
		}
		if len(seen) != count || !slices.IsSorted(seen) || len(slices.Compact(seen)) != count || page != pages {
			t.Errorf("%d volumes in %d pages of %d", len(seen), page, limit)
		}
	}
	_, err := s.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{StartingToken: "page-2"})
	if status.Code(err) != codes.Aborted {
		t.Errorf("a bad token got %v, want Aborted", err)
	}
}

// TestHealthCapabilities: the service claims the health calls if it has conditions.
func TestHealthCapabilities(t *testing.T) {
	s, _ := newTestServer(t)
	claims := func() (list []csi.ControllerServiceCapability_RPC_Type) {
		reply, err := s.ControllerGetCapabilities(t.Context(), nil)
		must(t, err)
		for _, c := range reply.GetCapabilities() {
			list = append(list, c.GetRpc().GetType())
		}
		return list
	}
	health := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH}
	without := claims()
	s.conditions = func(context.Context) (csihealth.Found, error) { return csihealth.Found{}, nil }
	if with := claims(); slices.Contains(without, health[0]) || slices.Contains(without, health[1]) || !slices.Equal(with, append(without, health...)) {
		t.Errorf("%v, %v", without, with)
	}
}
