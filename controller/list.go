package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

// ListVolumes lists this node's ready volumes (CSI spec, "ListVolumes"). The token of a page is the last handle on it,
// so that pages stay right while volumes come and go between them.
func (s *Server) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if req.GetMaxEntries() < 0 {
		return nil, lvm.Errorf(lvm.KindInvalid, "max_entries is %d; give 0 for all volumes, or a positive number", req.GetMaxEntries())
	}
	if token := req.GetStartingToken(); token != "" {
		if _, err := lvm.ParseID(token); err != nil {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is not one that ListVolumes gave out; start again without a token", token)
		}
	}
	volumes, err := s.volumes.List(ctx)
	if err != nil {
		return nil, err
	}
	page, next := pageOf(volumes, req.GetStartingToken(), int(req.GetMaxEntries()))
	reply := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range page {
		reply.Entries = append(reply.Entries, &csi.ListVolumesResponse_Entry{Volume: volumeReply(volume, s.node)})
	}
	return reply, nil
}

// pageOf returns at most limit volumes (0: all) that come after the handle `after`, and the token of the next page,
// empty on the last one. The volumes come in ascending order of their handles.
func pageOf(volumes []lvm.Volume, after string, limit int) (page []lvm.Volume, next string) {
	for _, volume := range volumes {
		if after != "" && volume.ID.String() <= after {
			continue
		}
		if limit > 0 && len(page) == limit {
			return page, page[limit-1].ID.String()
		}
		page = append(page, volume)
	}
	return page, ""
}
