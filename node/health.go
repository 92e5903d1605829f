package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Health returns conditions of this cluster's volumes: mounted file systems that are nearly full, or read-only after errors;
// raw block volumes with a signature that the node's own system might act on; encrypted volumes with a damaged header. It reads
// the mount table, the usage of the mounted file systems, ext4's error counters, LUKS headers, and both ends of raw block
// volumes.
func (s *Server) Health(ctx context.Context) ([]lvm.Condition, error) {
	failed, err := s.mounted.Failed()
	if err != nil {
		return nil, err
	}
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return nil, err
	}
	usage, err := s.fileSystemsOf(ctx, volumes)
	if err != nil {
		return nil, err
	}
	findings := slices.Concat(s.findHostSignatures(ctx, volumes), fullFileSystems(volumes, usage), s.limits.conditions(volumes))
	if len(failed) == 0 {
		return findings, nil
	}
	deviceOf := s.activeDevices(ctx, volumes)
	for _, v := range volumes {
		path, number, active := deviceOf(v)
		if !active || !slices.Contains(failed, number) {
			continue // it works, is not mounted, or is being unmounted
		}
		findings = append(findings, lvm.Condition{Type: lvm.ConditionFileSystemReadOnly, Group: v.Group, Volume: v,
			Text: "the file system on " + string(v.Group) + "/" + v.ID.LV + " (" + path + ") has errors, and the kernel refuses writes to it: " +
				"read the node's kernel log. If the disk works, delete the pod: the driver checks the file system before it mounts it again"})
	}
	return findings, nil
}

// Limits of file systems, in percent: of the space that users other than root can write, and of the inodes.
const (
	nearlyFullPercent = 10
	fullPercent       = 2
)

// fullFileSystems returns the file systems with little space or few inodes left. One that does not answer has no condition.
func fullFileSystems(volumes []lvm.Volume, usage map[lvm.ID]report.FileSystem) []lvm.Condition {
	var found []lvm.Condition
	for _, v := range volumes {
		f, mounted := usage[v.ID]
		if !mounted || f.Error != "" || v.Access.ReadOnly() { // nothing needs space in a read-only copy
			continue
		}
		if kind := spaceCondition(f); kind != "" {
			found = append(found, lvm.Condition{Type: kind, Group: v.Group, Volume: v,
				Text: fmt.Sprintf("%s of %s in the file system are available: expand the claim%s, or delete files", f.Available, f.Size, expansionCommand(v))})
		}
		if isBelow(f.InodesFree, f.Inodes, nearlyFullPercent) {
			found = append(found, lvm.Condition{Type: lvm.ConditionFileSystemInodesNearlyUsed, Group: v.Group, Volume: v,
				Text: fmt.Sprintf("%d of %d inodes in the file system are free, and each new file needs one: expand the claim%s, or delete files", f.InodesFree, f.Inodes, expansionCommand(v))})
		}
	}
	return found
}

// spaceCondition returns the condition of a file system's space; "": none.
func spaceCondition(f report.FileSystem) lvm.ConditionType {
	switch {
	case isBelow(int64(f.Available), int64(f.Size), fullPercent):
		return lvm.ConditionFileSystemFull
	case isBelow(int64(f.Available), int64(f.Size), nearlyFullPercent):
		return lvm.ConditionFileSystemNearlyFull
	}
	return ""
}

// isBelow reports whether left is less than percent of all. It uses floats, because all*percent may overflow.
func isBelow(left, all int64, percent float64) bool { return float64(left)*100 < float64(all)*percent }

func expansionCommand(v lvm.Volume) string {
	namespace, name, ok := strings.Cut(v.Claim, "/")
	if !ok {
		return ""
	}
	return fmt.Sprintf(" (kubectl patch pvc %s -n %s, spec.resources.requests.storage)", name, namespace)
}

// checkHeaders checks the LUKS headers of the active encrypted volumes.
func (s *Server) checkHeaders(ctx context.Context, volumes []lvm.Volume) (findings []lvm.Condition) {
	for _, v := range volumes {
		if v.Class.Encryption == lvm.EncryptionNone {
			continue
		}
		path, active, err := s.devices.Device(ctx, v.ID, v.UUID)
		if err != nil || !active {
			continue
		}
		if problem, err := s.encryption.Check(encryptedVolume(v, path, false, v.Block)); err == nil && problem != "" {
			findings = append(findings, lvm.Condition{Type: lvm.ConditionEncryptionHeaderDamaged, Group: v.Group, Volume: v, Text: problem})
		}
	}
	return findings
}

// NodeGetVolumeHealth returns the conditions of a volume, whether a pod uses it or not (CSI spec, "NodeGetVolumeHealth"). It starts no
// process, and reads the disks only if the last reading has no such volume. lvm.KindNotFound: this node has no such volume.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedNodeServer.NodeGetVolumeHealth(ctx, req)
	}
	if req.GetVolumeId() == "" {
		return nil, errNoVolume
	}
	id, err := parseHandle(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, err
	}
	health := csihealth.Volume(id, found.Conditions)
	if len(health.GetHealthStatuses()) == 0 && !found.Volumes[id] { // it may be new
		if _, err := s.lookup(ctx, id); err != nil {
			return nil, err
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeGetStorageHealth returns the conditions of this node's volume groups (CSI spec, "NodeGetStorageHealth"). It starts no process.
func (s *Server) NodeGetStorageHealth(ctx context.Context, req *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedNodeServer.NodeGetStorageHealth(ctx, req)
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetStorageHealthResponse{BackendHealth: csihealth.Storage(found.Conditions)}, nil
}
