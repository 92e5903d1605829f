package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

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
