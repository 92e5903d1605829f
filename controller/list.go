package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

// ListVolumes lists this node's ready volumes (CSI spec, "ListVolumes"). The token of a page is its last handle, so that pages
// stay correct if volumes are created or deleted between the calls.
func (s *Server) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	if err := checkPage(req.GetMaxEntries(), req.GetStartingToken()); err != nil {
		return nil, err
	}
	volumes, err := s.volumes.List(ctx)
	if err != nil {
		return nil, err
	}
	page, next := pageOf(volumes, func(v lvm.Volume) lvm.ID { return v.ID }, req.GetStartingToken(), int(req.GetMaxEntries()))
	reply := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range page {
		reply.Entries = append(reply.Entries, &csi.ListVolumesResponse_Entry{Volume: volumeReply(volume, s.node)})
	}
	return reply, nil
}

// checkPage refuses a negative number of entries, and a token that cannot be the last handle of a page.
func checkPage(limit int32, token string) error {
	if limit < 0 {
		return lvm.Errorf(lvm.KindInvalid, "max_entries is %d; give 0 for all, or a positive number", limit)
	}
	if token == "" {
		return nil
	}
	if _, err := lvm.ParseID(token); err != nil {
		return status.Errorf(codes.Aborted, "starting_token %q is not one that this list gave out; start again without a token", token)
	}
	return nil
}

// pageOf returns at most limit items (0: all) after the handle `after`, and the token of the next page, empty for the last
// page. The items are in ascending order of their handles.
func pageOf[T any](items []T, id func(T) lvm.ID, after string, limit int) (page []T, next string) {
	for _, item := range items {
		if after != "" && id(item).String() <= after {
			continue
		}
		if limit > 0 && len(page) == limit {
			return page, id(page[limit-1]).String()
		}
		page = append(page, item)
	}
	return page, ""
}
