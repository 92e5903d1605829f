package ondisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// podVolumes are the block devices that are volumes of pods, of any storage driver, as the kernel and the kubelet's directories show.
type podVolumes struct {
	where Positions
	used  map[string]string // a clause, by the device's name
	under map[string]string // the backing device of a loop device, by names
}

// podVolumes finds them. The kubelet attaches a loop device to each raw block volume, and binds or links the volume's device below its
// own directory. kubelet is that directory; "": the node has none.
func (p Positions) podVolumes(kubelet string) (podVolumes, error) {
	v := podVolumes{p, map[string]string{}, map[string]string{}}
	if err := v.loops(); err != nil || kubelet == "" {
		return v, err
	}
	mounts, err := dm.ReadMounts(filepath.Join(p.Proc, "self/mountinfo"))
	if err != nil {
		return v, err
	}
	for _, m := range mounts {
		switch {
		case !isBelow(m.Point, kubelet):
		case m.Type == "devtmpfs" || m.Type == "tmpfs":
			v.add(nodeAt(m.Point), m.Point)
		default:
			v.add(m.Device(), m.Point)
		}
	}
	for _, pattern := range []string{"pods/*/volumeDevices/*/*", "plugins/*/volumeDevices/*/*", "plugins/kubernetes.io/*/volumeDevices/*/*", "plugins/kubernetes.io/*/volumeDevices/*/*/*"} {
		places, err := filepath.Glob(filepath.Join(kubelet, pattern))
		if err != nil {
			return v, err
		}
		for _, place := range places {
			v.add(nodeAt(place), place)
		}
	}
	return v, nil
}

// isBelow reports whether a path is of a pod or a storage driver in the kubelet's directory.
func isBelow(path, kubelet string) bool {
	rest, is := strings.CutPrefix(path, filepath.Clean(kubelet)+"/")
	return is && (strings.HasPrefix(rest, "pods/") || strings.HasPrefix(rest, "plugins/"))
}

// nodeAt returns the number of the block device that the path leads to; 0: none.
func nodeAt(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0
	}
	return st.Rdev
}

func (v podVolumes) add(number uint64, place string) {
	if name := v.name(number); name != "" {
		v.used[name] = "it is, or carries, a volume of a pod: " + place
	}
}

func (v podVolumes) name(number uint64) string {
	folder, err := os.Readlink(filepath.Join(v.where.Sys, "dev/block", dm.FormatNumber(number)))
	if err != nil || number == 0 {
		return ""
	}
	return filepath.Base(folder)
}

// loops finds the loop devices over block devices, and these.
func (v podVolumes) loops() error {
	attached, err := filepath.Glob(filepath.Join(v.where.Sys, "class/block/loop*/loop/backing_file"))
	if err != nil {
		return err
	}
	for _, file := range attached {
		loop := filepath.Base(filepath.Dir(filepath.Dir(file)))
		behind, err := v.where.behind(loop)
		if errors.Is(err, unix.ENXIO) || dm.IsVanished(err) {
			continue // it was detached
		}
		if err != nil {
			return fmt.Errorf("cannot read what the loop device %s is attached to: %w", loop, err)
		}
		if behind.device == 0 {
			continue // a file
		}
		name := v.name(behind.device)
		v.under[loop] = name
		v.used[loop] = "it is a loop device over a block device, as the kubelet attaches one to each raw block volume of a pod"
		v.used[name] = fmt.Sprintf("the loop device %s is attached to it, as the kubelet attaches one to each raw block volume of a pod", loop)
	}
	return nil
}

// behind returns what a loop device is attached to.
func (p Positions) behind(loop string) (loopStatus, error) {
	ask := p.backing
	if ask == nil {
		ask = askLoop
	}
	f, err := p.open(loop)
	if err != nil {
		return loopStatus{}, err
	}
	defer func() { _ = unix.Close(f.Fd) }()
	return ask(f.Fd)
}

// explain returns a clause that says why a device is, or is made of, a volume of a pod; "": it is not.
func (v podVolumes) explain(name string) string {
	found := ""
	v.each(name, 0, func(part string) {
		if found == "" {
			found = v.used[part]
		}
	})
	return found
}

// isRemote reports whether a device comes over a storage network (iSCSI, Fibre Channel, NVMe over Fabrics).
func (v podVolumes) isRemote(name string) (remote bool) {
	v.each(name, 0, func(part string) {
		folder, err := filepath.EvalSymlinks(v.where.path(part))
		if err != nil {
			return
		}
		remote = remote || remotePath.MatchString(folder) || strings.Contains(folder, "/nvme-fabrics/") || overFabrics(filepath.Dir(folder))
	})
	return remote
}

// overFabrics reports whether one of the controllers of an NVMe subsystem is not in the machine.
func overFabrics(subsystem string) bool {
	transports, err := filepath.Glob(filepath.Join(subsystem, "nvme*/transport"))
	if err != nil {
		return false
	}
	for _, file := range transports {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) != "pcie" {
			return true
		}
	}
	return false
}

// each calls do for a device and each that it is made of: the disk of a partition, the legs of a RAID, the device below a loop device.
func (v podVolumes) each(name string, depth int, do func(string)) {
	do(name)
	if depth > maxStack {
		return
	}
	parts, _ := dm.ReadNames(v.where.path(name, "slaves")) // a disk has none
	if whole, err := v.where.whole(name); err == nil && whole != "" {
		parts = append(parts, whole)
	}
	if below := v.under[name]; below != "" {
		parts = append(parts, below)
	}
	for _, part := range parts {
		v.each(part, depth+1, do)
	}
}
