package bench

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

const (
	mebibyte = 1 << 20
	size     = 64 * mebibyte
	bigger   = 128 * mebibyte
	pool     = "pool" // of the bare commands
)

// Pauses before a call that reads. The driver caches a reading for half a second.
const soon, alone = 20 * time.Millisecond, 600 * time.Millisecond

var (
	thickClass = map[string]string{"volumeGroup": group}
	thinClass  = map[string]string{"volumeGroup": group, "layout": "thin", "overprovisionRatio": "10"}
)

// thickRound creates a linear volume, reads, expands the volume and deletes it.
func (m *meter) thickRound(ctx context.Context, name string) error {
	d := m.driver
	volume := group + "/" + name
	err := m.alternate(ctx,
		task{"CreateVolume",
			[]string{"lvcreate", "-qq", "-y", "-L", "64M", "-n", name + "-s", group},
			[]string{"lvcreate", "-qq", "-y", "-L", "64M", "-n", name + "-t", group},
			func(ctx context.Context) error { return d.create(ctx, thickClass, name, size) }},
		task{"CreateVolumeAgain", nil, nil,
			func(ctx context.Context) error { return d.create(ctx, thickClass, name, size) }},
		task{"ListVolumes",
			[]string{"lvs", "--reportformat", "json", group},
			[]string{"lvs", "--reportformat", "json", group},
			nil},
		task{"GetCapacity",
			[]string{"vgs", "--noheadings", "-o", "vg_free", group},
			[]string{"vgs", "--noheadings", "-o", "vg_free", group},
			nil})
	if err != nil {
		return err
	}
	for _, reading := range []struct {
		work  string
		call  func(context.Context) error
		pause time.Duration
	}{
		{"ListVolumes", d.list, soon}, {"GetCapacity", d.capacity, soon}, {"GetCapacityAlone", d.capacity, alone},
		{"GetPluginInfo", d.info, soon}, {"Metrics", d.scrape, alone},
	} {
		if err := m.read(ctx, reading.work, Nodelvm, reading.pause, reading.call, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	return m.alternate(ctx,
		task{"ControllerExpandVolume",
			[]string{"lvextend", "-qq", "-y", "-L", "128M", volume + "-s"},
			[]string{"lvextend", "-qq", "-y", "-L", "128M", volume + "-t"},
			func(ctx context.Context) error { return d.expand(ctx, name, bigger) }},
		task{"DeleteVolume",
			[]string{"lvremove", "-qq", "-y", volume + "-s"},
			[]string{"lvremove", "-qq", "-y", volume + "-t"},
			func(ctx context.Context) error { return d.remove(ctx, name) }})
}

// thin measures thin volumes; the bare commands use a separate pool.
func (m *meter) thin(ctx context.Context, rounds int) error {
	if err := m.admin(ctx, "lvcreate", "-qq", "-y", "--type", "thin-pool", "-L", "512M", "-n", pool, group); err != nil {
		return err
	}
	return m.warmRounds(ctx, "thin volumes", rounds, m.thinRound)
}

// thinRound creates a thin volume and a snapshot of it, and deletes both.
func (m *meter) thinRound(ctx context.Context, name string) error {
	d := m.driver
	volume, snapshot, thin := group+"/"+name, name+"-snapshot", name+"-thin"
	return m.alternate(ctx,
		task{"CreateThinVolume",
			[]string{"lvcreate", "-qq", "-y", "--type", "thin", "-V", "64M", "--thinpool", pool, "-n", name + "-s", group},
			[]string{"lvcreate", "-qq", "-y", "--type", "thin", "-V", "64M", "--thinpool", pool, "-n", name + "-t", group},
			func(ctx context.Context) error { return d.create(ctx, thinClass, thin, size) }},
		task{"CreateSnapshot",
			[]string{"lvcreate", "-qq", "-y", "-s", "-n", name + "-s-snapshot", volume + "-s"},
			[]string{"lvcreate", "-qq", "-y", "-s", "-n", name + "-t-snapshot", volume + "-t"},
			func(ctx context.Context) error { return d.snapshot(ctx, snapshot, thin) }},
		task{"DeleteSnapshot",
			[]string{"lvremove", "-qq", "-y", volume + "-s-snapshot"},
			[]string{"lvremove", "-qq", "-y", volume + "-t-snapshot"},
			func(ctx context.Context) error { return d.removeSnapshot(ctx, snapshot) }},
		task{"DeleteThinVolume",
			[]string{"lvremove", "-qq", "-y", volume + "-s"},
			[]string{"lvremove", "-qq", "-y", volume + "-t"},
			func(ctx context.Context) error { return d.remove(ctx, thin) }})
}

func (m *meter) alternate(ctx context.Context, tasks ...task) error {
	for _, t := range tasks {
		if err := m.measure(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// mountable is the capability of a volume with a file system.
var mountable = &csi.VolumeCapability{
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
}

// create creates a volume, and stores its handle under its name.
func (d *driver) create(ctx context.Context, class map[string]string, name string, bytes int64) error {
	parameters := maps.Clone(class)
	parameters["csi.storage.k8s.io/pvc/name"], parameters["csi.storage.k8s.io/pvc/namespace"] = "data-database-0", "production"
	reply, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:               name,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: bytes},
		Parameters:         parameters,
		VolumeCapabilities: []*csi.VolumeCapability{mountable},
	})
	if err != nil {
		return err
	}
	d.handles.Store(name, reply.GetVolume().GetVolumeId())
	return nil
}

// handle returns the handle of a volume or snapshot.
func (d *driver) handle(name string) string {
	handle, _ := d.handles.Load(name)
	id, _ := handle.(string)
	return id
}

func (d *driver) remove(ctx context.Context, name string) error {
	_, err := d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: d.handle(name)})
	return err
}

func (d *driver) expand(ctx context.Context, name string, bytes int64) error {
	_, err := d.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: d.handle(name), CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}, VolumeCapability: mountable,
	})
	return err
}

func (d *driver) snapshot(ctx context.Context, name, source string) error {
	reply, err := d.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: d.handle(source)})
	if err != nil {
		return err
	}
	d.handles.Store(name, reply.GetSnapshot().GetSnapshotId())
	return nil
}

func (d *driver) removeSnapshot(ctx context.Context, name string) error {
	_, err := d.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: d.handle(name)})
	return err
}

func (d *driver) info(ctx context.Context) error {
	_, err := csi.NewIdentityClient(d.conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	return err
}

func (d *driver) scrape(ctx context.Context) error {
	_, err := d.activity(ctx)
	return err
}

func (d *driver) list(ctx context.Context) error {
	_, err := d.ListVolumes(ctx, &csi.ListVolumesRequest{})
	return err
}

func (d *driver) capacity(ctx context.Context) error {
	reply, err := d.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: maps.Clone(thickClass)})
	if err == nil && reply.GetAvailableCapacity() == 0 {
		return fmt.Errorf("the driver sees no room in a group that has some")
	}
	return err
}
