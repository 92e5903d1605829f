package node

import (
	"context"
	"io"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/trim"
)

// Trimmable lists the file systems of this cluster's volumes that are mounted for writing; see trim.Node.
func (s *Server) Trimmable(ctx context.Context) ([]trim.FileSystem, error) {
	mounted, err := s.mounted.FileSystems()
	if err != nil || len(mounted) == 0 {
		return nil, err
	}
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return nil, err
	}
	var list []trim.FileSystem
	for _, v := range volumes {
		if v.Block {
			continue
		}
		if _, number, active := s.activeDevice(ctx, v); active && len(writable(mounted[number])) > 0 {
			list = append(list, trim.FileSystem{ID: v.ID, Volume: v.Name})
		}
	}
	return list, nil
}

// Trim discards the unused blocks of one range of a volume's file system; see trim.Node. It locks the volume only for this
// range: a pod that ends need not wait for the whole file system.
func (s *Server) Trim(ctx context.Context, id lvm.ID, from lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	release, err := s.locks.lockShared(id.String())
	if err != nil {
		return 0, 0, err
	}
	defer release()
	block, mounts, err := s.writableMounts(ctx, id)
	switch {
	case err != nil:
		return 0, 0, err
	case from >= block.Size:
		return 0, 0, io.EOF
	case len(mounts) == 0:
		return 0, 0, lvm.Errorf(lvm.KindNotFound, "volume %s is not mounted for writing on this node", id)
	}
	return s.mounted.Trim(mounts[0], from, block.Size)
}
