package ondisk

import (
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
	err := p.eachLoop(func(loop, device string) {
		v.under[loop] = device
		v.used[loop] = "it is a loop device over a block device, as the kubelet attaches one to each raw block volume of a pod"
		v.used[device] = fmt.Sprintf("the loop device %s is attached to it, as the kubelet attaches one to each raw block volume of a pod", loop)
	})
	if err != nil || kubelet == "" {
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
	if name := v.where.nameOf(number); name != "" {
		v.used[name] = "it is, or carries, a volume of a pod: " + place
	}
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

// each calls do for a device and each that it is made of, the device below a loop device included.
func (v podVolumes) each(name string, depth int, do func(string)) {
	one := func(name string) {
		do(name)
		if below := v.under[name]; below != "" && depth <= maxStack {
			v.each(below, depth+1, do)
		}
	}
	one(name)
	v.where.eachBelow(name, 0, one)
}
