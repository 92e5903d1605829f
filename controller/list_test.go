package controller

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestListVolumesByPages(t *testing.T) {
	s, _ := newTestServer(t)
	for i := range 5 {
		req := wanted()
		req.Name, req.CapacityRange.RequiredBytes = fmt.Sprintf("v%d", i), 1<<30
		mustCreate(t, s, req)
	}
	seen := map[string]bool{}
	for token, page := "", 0; ; page++ {
		reply, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		must(t, err)
		for _, entry := range reply.GetEntries() {
			seen[entry.GetVolume().GetVolumeId()] = true
		}
		if page == 0 { // the last volume of a page goes; the token still leads on
			last := reply.GetEntries()[1].GetVolume().GetVolumeId()
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: last}); err != nil {
				t.Fatal(err)
			}
		}
		if token = reply.GetNextToken(); token == "" {
			if page != 2 {
				t.Errorf("the last page has number %d, want 2", page)
			}
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d volumes were listed, want 5", len(seen))
	}
	_, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "page-2"})
	if status.Code(err) != codes.Aborted {
		t.Errorf("a bad token got %v, want Aborted", err)
	}
	_, err = s.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	expectKind(t, err, lvm.KindInvalid)
}
