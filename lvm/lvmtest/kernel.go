package lvmtest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// kernel is the fake kernel.
type kernel struct{ node *Node }

func (k kernel) Load(context.Context) error { return nil }

func (k kernel) Ready() error { return nil }

// TargetStates reads Node.LackTargets.
func (k kernel) TargetStates(names []string, _ bool) (map[string]lvm.TargetState, error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	states := map[string]lvm.TargetState{}
	for _, name := range names {
		states[name] = k.node.lacks[name]
	}
	return states, nil
}

// LackTargets sets which device-mapper targets the kernel lacks. LVM can load none of them.
func (n *Node) LackTargets(states map[string]lvm.TargetState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lacks = maps.Clone(states)
}

func (k kernel) Device(uuid string) (string, bool, error) {
	devices, err := k.Devices()
	for _, d := range devices {
		if d.UUID == uuid {
			return d.Path, true, nil
		}
	}
	return "", false, err
}

func (k kernel) Devices() ([]lvm.Device, error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	devices := make([]lvm.Device, 0, len(k.node.devices))
	for _, d := range k.node.devices {
		listed := d.Device
		listed.Suspended = d.suspended
		devices = append(devices, listed)
	}
	return devices, nil
}

// Mapping numbers the fake's devices as the kernel does: the minor number is that of the name.
func (k kernel) Mapping(device uint64) (uuid, name string, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(fmt.Sprintf("/dev/dm-%d", unix.Minor(device)))
	if d == nil {
		return "", "", fs.ErrNotExist
	}
	return d.UUID, k.node.mapperName(d), nil
}

func (k kernel) Remove(uuid string) (removed bool, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	i := slices.IndexFunc(k.node.devices, func(d *device) bool { return d.UUID == uuid })
	switch {
	case i < 0:
		return false, nil
	case k.node.devices[i].opens > 0 || k.node.carries(k.node.devices[i]):
		return false, fmt.Errorf("%s: %w", uuid, unix.EBUSY)
	}
	k.node.devices = slices.Delete(k.node.devices, i, i+1)
	return true, nil
}

func (k kernel) SuspendDevice(uuid string, suspend bool) error {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.deviceOf(uuid)
	switch {
	case d == nil:
		return unix.ENXIO
	case suspend && d.frozen:
		return unix.EBUSY
	}
	d.suspended = suspend
	return nil
}

// MessagePool refuses what would not be consistent, which the kernel accepts: a snapshot of an active volume that is not suspended.
func (k kernel) MessagePool(uuid, text string) error {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	for _, g := range k.node.groups {
		for i := range g.LVs {
			if pool := &g.LVs[i]; pool.Thin != nil && DeviceUUID(string(g.UUID), pool.UUID)+"-tpool" == uuid {
				return k.node.message(g, pool, text)
			}
		}
	}
	return unix.ENXIO
}

func (n *Node) message(g *group, pool *lvm.LV, text string) error {
	var made, origin int
	k := n.kernelOf(pool)
	devices := k.devices
	switch reserve := text == "reserve_metadata_snap"; {
	case reserve && k.held:
		return unix.EBUSY
	case !reserve && text == "release_metadata_snap" && !k.held:
		return unix.EINVAL
	case reserve, text == "release_metadata_snap":
		k.held = reserve
		return nil
	}
	if _, err := fmt.Sscanf(text, "delete %d", &made); err == nil {
		if !devices[made] {
			return unix.ENODATA
		}
		delete(devices, made)
		return nil
	}
	if _, err := fmt.Sscanf(text, "create_snap %d %d", &made, &origin); err != nil {
		return unix.EINVAL
	}
	source := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Pool == pool.Name && n.numbers[lv.UUID] == origin })
	if source < 0 || devices[made] || !devices[origin] {
		return unix.EEXIST
	}
	if d := n.device(n.path(g, g.LVs[source].UUID)); d != nil && !d.suspended {
		return fmt.Errorf("the origin %s is not suspended", g.LVs[source].Name)
	}
	devices[made] = true
	return nil
}

func (n *Node) deviceOf(uuid string) *device {
	for _, d := range n.devices {
		if d.UUID == uuid {
			return d
		}
	}
	return nil
}

func (k kernel) ClearInactiveTable(string) (was bool, err error) { return false, nil }

func (k kernel) RemoveNamesOf(group lvm.VGName, lv string, hidden []string) (removed []string, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	there := k.node.mapperNames()
	for _, name := range append([]string{mapperName(group, lv)}, hidden...) {
		if k.node.names[name] && !slices.Contains(there, name) {
			delete(k.node.names, name)
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// Name creates the names of all devices in /dev/mapper, as an admin's lvm does without udev: only lvm removes them.
func (n *Node) Name() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range n.mapperNames() {
		n.names[name] = true
	}
}

// Names lists the names that Name created and that still exist.
func (n *Node) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.names))
}

// mapperNames lists the device-mapper names of the existing devices.
func (n *Node) mapperNames() (names []string) {
	for _, d := range n.devices {
		names = append(names, n.mapperName(d))
	}
	return names
}

func (n *Node) mapperName(d *device) string {
	for _, g := range n.groups {
		if strings.HasPrefix(d.UUID, DeviceUUID(string(g.UUID), "")) {
			name := mapperName(g.Name, d.volume)
			if strings.HasSuffix(d.UUID, "-tpool") {
				name += "-tpool"
			}
			return name
		}
	}
	return ""
}

func mapperName(group lvm.VGName, lv string) string {
	return strings.ReplaceAll(string(group), "-", "--") + "-" + strings.ReplaceAll(lv, "-", "--")
}

func (k kernel) IsSuspended(path string) (bool, error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(path)
	return d != nil && d.suspended, nil
}

func (k kernel) Status(path string) (target, parameters string, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(path)
	if d == nil {
		return "", "", fmt.Errorf("%s: no such device", path)
	}
	target, parameters = k.node.status(d)
	return target, parameters, nil
}

func (k kernel) Writes(path string) (count int64, size lvm.Bytes, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(path)
	if d == nil {
		return 0, 0, fmt.Errorf("%s: no such device", path)
	}
	return d.writes, lvm.Bytes(d.writes) * 4 * lvm.KiB, nil
}

// Write counts writes of 4 KiB to a volume's device.
func (n *Node) Write(path string, count int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).writes += count
}

func (k kernel) CheckUnused(_ context.Context, path string) error {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(path)
	switch {
	case d != nil && d.opens > 0:
		return lvm.Errorf(lvm.KindInUse, "%s is in use by a pod or a program of this node: stop the pod or program, or unmount the file system", path)
	case d != nil && d.bound > 0:
		return lvm.Errorf(lvm.KindInUse, "%s is bound at the path of a pod: end the pod, or unmount that path", path)
	}
	return nil
}

func (k kernel) Stacks(volumes []lvm.Device) (s lvm.Stacks, err error) {
	s.OnRemovedDisk = map[string]bool{}
	for _, v := range volumes {
		_, removed, _ := k.DisksBelow(v.Path)
		s.OnRemovedDisk[v.Path] = len(removed) > 0
	}
	return s, nil
}

func (k kernel) IsFrozen(path string) (bool, error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	d := k.node.device(path)
	return d != nil && d.frozen, nil
}

func (k kernel) Zero(ctx context.Context, zeroed lvm.Device, from, to lvm.Bytes, done func(lvm.Bytes)) error {
	k.node.mu.Lock()
	held := k.node.held
	d := k.node.device(zeroed.Path)
	ready := d != nil && d.UUID == zeroed.UUID && d.opens == 0
	k.node.mu.Unlock()
	if !ready {
		return fmt.Errorf("open %s: no such device, or another one, or busy", zeroed.Path)
	}
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil && done != nil {
		done(to)
	}
	return ctx.Err()
}

func (k kernel) Write(to lvm.Device, _ []byte, _ lvm.Bytes) error {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	if d := k.node.device(to.Path); d == nil || d.UUID != to.UUID || d.opens > 0 {
		return fmt.Errorf("open %s: no such device, or another one, or busy", to.Path)
	}
	return nil
}

func (k kernel) Opens(path string) (int, error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	if d := k.node.device(path); d != nil {
		return d.opens, nil
	}
	return 0, fmt.Errorf("no device %s", path)
}

func (k kernel) Sync(paths []string) error {
	if len(paths) == 0 {
		return fmt.Errorf("no disk named")
	}
	return nil
}

// Hold opens a volume's device as a pod does, until release is called.
func (n *Node) Hold(path string) (release func()) {
	return n.use(path, func(d *device) *int { return &d.opens })
}

// Bind binds a volume's device node at a path, as NodePublishVolume does for a raw block volume, until release is called.
func (n *Node) Bind(path string) (release func()) {
	return n.use(path, func(d *device) *int { return &d.bound })
}

func (n *Node) use(path string, count func(*device) *int) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	users := count(n.device(path))
	*users++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		*users--
	}
}
