package node

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// TroubleReadOnly is a file system that has met errors, after which it takes no more writes.
const TroubleReadOnly lvm.Trouble = "FileSystemReadOnly"

// Health looks for volumes of this cluster whose mounted file systems have met errors, so that the kernel has made them
// read-only, and for raw block volumes with a signature that the node's own system might act on. It reads the table of mounts,
// ext4's count of errors, and the beginning of the raw block volumes that are active.
func (s *Server) Health(ctx context.Context) ([]lvm.Finding, error) {
	failed, err := s.fs.Failed()
	if err != nil {
		return nil, err
	}
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return nil, err
	}
	findings := s.signatures(ctx, volumes)
	if len(failed) == 0 {
		return findings, nil
	}
	for _, v := range volumes {
		path, active, err := s.devices.Device(v.ID, v.UUID)
		if err != nil || !active {
			continue // it is not mounted, or is on its way out
		}
		block, err := s.fs.Stat(path)
		if err != nil || !slices.Contains(failed, block.Number) {
			continue
		}
		findings = append(findings, lvm.Finding{Trouble: TroubleReadOnly, Group: v.Group, Volume: v,
			Text: "the file system on " + v.Group + "/" + v.ID.LV + " (" + path + ") has met errors and takes no more writes: " +
				"read the node's kernel log; when its disk is sound, delete the pod, and the file system is checked before it is mounted again"})
	}
	return findings, nil
}
