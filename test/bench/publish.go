package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

const (
	cgroups = "/sys/fs/cgroup"
	pod     = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c001"
)

// publishers are the rows of the table of NodePublishVolume, and Key.Who of their samples.
var publishers = []struct {
	who, says string
	flags     []string
	volume    string
}{
	{"driver-without-limits", "without I/O limits", nil, "plain"},
	{"volume-without-class", "with I/O limits; the volume has no class", limiting, "plain"},
	{"volume-with-class", "with I/O limits; the volume has a class with one", limiting, "classed"},
}

var limiting = []string{"--io-limits=" + cgroups}

const publishing = "NodePublishVolume"

// publications is how often a turn takes readings: the start of the driver takes most of its time.
const publications = 8

// publishes takes samples of NodePublishVolume, in turns. A driver that has just started serves each turn: its flags decide whether it limits I/O.
// All orders have their turn, because what else runs on the machine changes from second to second.
func (n *node) publishes(ctx context.Context, cfg Config) error {
	if err := n.newGroup(ctx); err != nil {
		return err
	}
	dir := filepath.Join(cgroups, "kubepods/pod"+pod) // as a kubelet makes it
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer func() { _ = errors.Join(os.Remove(dir), os.Remove(filepath.Dir(dir))) }()
	volumes := map[string]*csi.Volume{}
	err := n.serving(ctx, limiting, func(d *driver) error {
		return errors.Join(d.createFor(ctx, volumes, "plain", nil), d.createFor(ctx, volumes, "classed", map[string]string{"writeIOPS": "1k"}))
	})
	for turn := range (cfg.Rounds + 1) * len(publishers) {
		if err != nil {
			return err
		}
		round := turn / len(publishers) // the first one warms up
		at := (turn + round/2) % len(publishers)
		if round%2 == 1 {
			at = len(publishers) - 1 - at
		}
		p := publishers[at]
		err = n.serving(ctx, p.flags, func(d *driver) error {
			m := &meter{node: n, driver: d, out: cfg.Out, silent: round == 0}
			return m.publish(ctx, p.who, volumes[p.volume])
		})
	}
	n.say("  %s: %d rounds", publishing, cfg.Rounds)
	return err
}

// createFor creates a volume with the limits of a class, and stores it under its name.
func (d *driver) createFor(ctx context.Context, volumes map[string]*csi.Volume, name string, limits map[string]string) error {
	reply, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		Parameters: maps.Clone(thickClass), VolumeCapabilities: []*csi.VolumeCapability{mountable}, MutableParameters: limits})
	volumes[name] = reply.GetVolume()
	return err
}

// publish stages a volume, and takes samples of what gives it to a pod.
func (m *meter) publish(ctx context.Context, who string, v *csi.Volume) (err error) {
	const kubelet = "/var/lib/kubelet"
	staging, target := kubelet+"/plugins/kubernetes.io/csi/bench", kubelet+"/pods/"+pod+"/volumes/kubernetes.io~csi/bench/mount"
	for _, dir := range []string{staging, filepath.Dir(target)} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o750); err != nil {
			return err
		}
	}
	node := csi.NewNodeClient(m.driver.conn)
	if _, err := node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging,
		VolumeCapability: mountable, VolumeContext: v.GetVolumeContext()}); err != nil {
		return err
	}
	defer func() {
		_, failure := node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging})
		err = errors.Join(err, failure)
	}()
	if _, err := m.driver.settled(ctx); err != nil {
		return err
	}
	publish := func(ctx context.Context) error {
		_, err := node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, TargetPath: target,
			VolumeCapability: mountable, VolumeContext: v.GetVolumeContext()})
		return err
	}
	unpublish := func(ctx context.Context) error {
		_, err := node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target})
		return err
	}
	for range publications {
		err = errors.Join(err, m.read(ctx, publishing, who, soon, publish, unpublish))
	}
	return err
}

func (t *tables) publishes() {
	fmt.Fprint(t.out, "\n### NodePublishVolume\n\n| the driver runs | LVM processes | nodelvm, ms | relative to the first row |\n|---|---|---|---|\n")
	first := t.median(Key{publishing, 0, 1, publishers[0].who}, unitTime)
	for _, p := range publishers {
		key := Key{publishing, 0, 1, p.who}
		fmt.Fprintf(t.out, "| %s | %.4g | %s | %.2f |\n", p.says, t.median(key, unitProcesses), t.time(key), t.median(key, unitTime)/first)
	}
}
