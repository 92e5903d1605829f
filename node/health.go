package node

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// Health looks for volumes of this cluster whose mounted file systems have errors, so that the kernel has made them
// read-only, and for raw block volumes with a signature that the node's own system might act on. It reads the table of mounts,
// ext4's count of errors, and the beginning of the raw block volumes that are active.
func (s *Server) Health(ctx context.Context) ([]lvm.Condition, error) {
	failed, err := s.fs.FailedFileSystems()
	if err != nil {
		return nil, err
	}
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return nil, err
	}
	findings := s.findHostSignatures(ctx, volumes)
	if len(failed) == 0 {
		return findings, nil
	}
	for _, v := range volumes {
		path, active, err := s.devices.Device(v.ID, v.UUID)
		if err != nil || !active {
			continue // it is not mounted, or is being unmounted
		}
		block, err := s.fs.Stat(path)
		if err != nil || !slices.Contains(failed, block.Number) {
			continue
		}
		findings = append(findings, lvm.Condition{Type: lvm.ConditionFileSystemReadOnly, Group: v.Group, Volume: v,
			Text: "the file system on " + v.Group + "/" + v.ID.LV + " (" + path + ") has errors, and the kernel refuses writes to it: " +
				"read the node's kernel log. If the disk works, delete the pod: the driver checks the file system before it mounts it again"})
	}
	return findings, nil
}
