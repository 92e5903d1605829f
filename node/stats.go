package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
	"github.com/nodelvm/nodelvm/report"
)

// NodeGetVolumeStats returns the usage of a file system, or the size of a raw device (CSI spec, "NodeGetVolumeStats"). It
// starts no process. lvm.KindNotFound: the volume does not exist, has no device, or is not at that path; lvm.KindBusy: its file system does not answer.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	id, path, err := parseUsedVolume(req.GetVolumeId(), req.GetVolumePath(), "")
	if err != nil {
		return nil, err
	}
	_, _, device, err := s.deviceOf(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := s.mounts.Inspect(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Kind == mount.PathDevice && info.Device == device.Number:
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: int64(device.Size)}}}, nil
	case info.Mount == nil || info.Mount.Device != device.Number:
		return nil, lvm.Errorf(lvm.KindNotFound, "volume %s is not mounted at %s", id, path)
	}
	return s.statsOf(ctx, id, device.Number)
}

// statsOf returns the usage of a mounted file system. The kubelet asks again and again: calls share the read of one that does not answer.
func (s *Server) statsOf(ctx context.Context, id lvm.ID, device mount.DeviceNumber) (*csi.NodeGetVolumeStatsResponse, error) {
	mounted, err := s.mounted.FileSystems()
	if err != nil {
		return nil, err
	}
	f, there := report.FileSystem{}, len(mounted[device]) > 0
	if there {
		ctx, cancel := context.WithTimeout(ctx, usageTimeout)
		defer cancel()
		f, there = s.usage.start(id, mounted[device], s.mounted.UsageOf).await(ctx)
	}
	switch {
	case !there:
		return nil, lvm.Errorf(lvm.KindNotFound, "volume %s was unmounted", id)
	case f.Error != "":
		return nil, lvm.Errorf(lvm.KindBusy, "cannot read the usage of volume %s: %s", id, f.Error)
	}
	reply := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(f.Size), Used: int64(f.Used), Available: int64(f.Available)},
	}}
	if f.Inodes > 0 { // btrfs does not count them
		reply.Usage = append(reply.Usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: f.Inodes, Used: f.InodesUsed, Available: f.InodesFree})
	}
	return reply, nil
}

// usageTimeout limits the answers of all file systems of the node together. statfs(2) reads memory, but it can wait for a lock
// that a writer holds while its disk does not respond.
const usageTimeout = 2 * time.Second

// FileSystems returns the usage of the mounted file systems of this cluster's volumes. It starts no process. A file system that
// does not answer in time has an error, and delays no other.
func (s *Server) FileSystems(ctx context.Context) (map[lvm.ID]report.FileSystem, error) {
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return nil, err
	}
	return s.fileSystemsOf(ctx, volumes)
}

func (s *Server) fileSystemsOf(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]report.FileSystem, error) {
	mounted, err := s.mounted.FileSystems()
	if err != nil || len(mounted) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	reads := map[lvm.ID]*usageRead{}
	deviceOf := s.activeDevices(ctx, volumes)
	for _, v := range volumes {
		if v.Block {
			continue
		}
		if _, number, active := deviceOf(v); active && len(mounted[number]) > 0 {
			reads[v.ID] = s.usage.start(v.ID, mounted[number], s.mounted.UsageOf)
		}
	}
	all := make(map[lvm.ID]report.FileSystem, len(reads))
	for id, read := range reads {
		if entry, mounted := read.await(ctx); mounted {
			all[id] = entry
		}
	}
	return all, nil
}

// IO returns what the kernel has counted of the devices that the pods of this cluster's volumes use, and their limits; nothing if the driver does
// not limit I/O. It starts no process, and waits for no disk.
func (s *Server) IO(ctx context.Context) (map[lvm.ID]report.IO, error) {
	if s.limits.Limiter == nil {
		return nil, nil
	}
	volumes, err := s.devices.List(ctx)
	if err != nil || len(volumes) == 0 {
		return nil, err
	}
	counted, err := s.statistics()
	if err != nil {
		return nil, err
	}
	all := make(map[lvm.ID]report.IO, len(volumes))
	deviceOf := s.activeDevices(ctx, volumes)
	for _, v := range volumes {
		_, number, active := deviceOf(v)
		if c, known := counted[uint64(number)]; active && known {
			limits := v.Rates()
			all[v.ID] = report.IO{Reads: c.Reads, Writes: c.Writes, ReadBytes: c.ReadBytes, WrittenBytes: c.WriteBytes,
				ReadSeconds: c.ReadTime.Seconds(), WriteSeconds: c.WriteTime.Seconds(),
				ReadIOPSLimit: limits.ReadIOPS, WriteIOPSLimit: limits.WriteIOPS, ReadBandwidthLimit: limits.ReadBandwidth, WriteBandwidthLimit: limits.WriteBandwidth}
		}
	}
	return all, nil
}

// usageReader reads the usage of file systems, each in its own goroutine, at most one for a volume: a read that does not return
// costs one goroutine, whatever the number of requests.
type usageReader struct {
	mu      sync.Mutex
	running map[lvm.ID]*usageRead
}

// usageRead is one read. Read usage and err only after done is closed.
type usageRead struct {
	fsType string
	since  time.Time
	done   chan struct{}
	usage  mount.Usage
	err    error
}

// start returns the running read of this volume, or starts one.
func (u *usageReader) start(id lvm.ID, mounts []mount.FileSystem, read func(mount.FileSystem) (mount.Usage, error)) *usageRead {
	u.mu.Lock()
	defer u.mu.Unlock()
	if running := u.running[id]; running != nil {
		return running
	}
	if u.running == nil {
		u.running = map[lvm.ID]*usageRead{}
	}
	r := &usageRead{fsType: mounts[0].Type, since: time.Now(), done: make(chan struct{})}
	u.running[id] = r
	go func() {
		r.usage, r.err = firstUsage(mounts, read)
		u.mu.Lock()
		delete(u.running, id)
		u.mu.Unlock()
		close(r.done)
	}()
	return r
}

// firstUsage reads the usage at the first of the mount points that still shows the file system: another mount can cover one.
func firstUsage(mounts []mount.FileSystem, read func(mount.FileSystem) (mount.Usage, error)) (usage mount.Usage, err error) {
	for _, m := range mounts {
		if usage, err = read(m); !errors.Is(err, fs.ErrNotExist) {
			return usage, err
		}
	}
	return mount.Usage{}, err
}

// await returns the result; mounted is false if the file system was unmounted before the read.
func (r *usageRead) await(ctx context.Context) (f report.FileSystem, mounted bool) {
	f.Type = r.fsType
	select {
	case <-r.done:
	case <-ctx.Done():
		select {
		case <-r.done: // both have ended: use the answer
		default:
			f.Error = fmt.Sprintf("the file system has not answered since %s: its disk may be unresponsive", r.since.UTC().Format(time.RFC3339))
			return f, true
		}
	}
	if r.err != nil {
		f.Error = r.err.Error()
		return f, !errors.Is(r.err, fs.ErrNotExist)
	}
	f.Size, f.Used, f.Available = r.usage.Total, r.usage.Used, r.usage.Available
	f.Inodes, f.InodesUsed, f.InodesFree = r.usage.Inodes, r.usage.InodesUsed, r.usage.InodesFree
	return f, true
}
