package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// fake is both the devices and the machine below a Server: one volume, its device, and a table of mounts. It writes down
// what changes something.
type fake struct {
	active   bool
	content  filesystem.Content
	contents map[string]filesystem.Content // of devices with other content, by path
	probed   map[string]filesystem.Mark    // by device: the last
	volume   lvm.Volume                    // what its tags say: FormatMark, Block, Source
	opening  int                           // Stages that keep moves from holding the volume.
	binding  int                           // publications that keep the device from being replaced
	holding  bool                          // A move is about to hold it.
	gone     int                           // from this Lookup on, the volume is being deleted; 0: it stays
	lookups  int
	lags     bool // the file system is smaller than the device
	failed   []mount.DeviceNumber
	onDevice map[int64]string // what ReadAt finds, by offset
	reads    int              // of it
	mounts   map[string]*mount.Entry
	kinds    map[string]mount.PathKind
	did      []string
	fail     string            // the call that fails
	held     int               // how often the device is held
	moved    bool              // the volume's device becomes another one while it is being opened
	readOnly bool              // the device takes no writes
	during   func(call string) // runs in the middle of a call
	usage    func(mount.FileSystem) (mount.Usage, error)
	luks     fakeLUKS

	syncing chan struct{} // a sync ends when this is closed
}

func newFake() *fake {
	f := &fake{active: true, mounts: map[string]*mount.Entry{}, kinds: map[string]mount.PathKind{}, probed: map[string]filesystem.Mark{}}
	f.luks.fake = f
	return f
}

func (f *fake) do(format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	f.did = append(f.did, call)
	if f.during != nil {
		f.during(call)
	}
	if f.fail != "" && strings.HasPrefix(call, f.fail) {
		return errors.New(f.fail + " fails")
	}
	return nil
}

func (f *fake) ActivateAs(ctx context.Context, id lvm.ID, _ string, _ lvm.Encryption) (lvm.Volume, string, error) {
	f.active = true
	if err := f.do("activate"); err != nil {
		return lvm.Volume{}, "", err
	}
	v, err := f.Lookup(ctx, id)
	return v, "/dev/dm-3", err
}
func (f *fake) BeginReplay(context.Context, lvm.ID, string) error {
	if err := f.do("begin replay"); err != nil {
		return err
	}
	f.volume.Access = lvm.AccessReplaying
	return nil
}
func (f *fake) SetReplayed(context.Context, lvm.ID, string) error {
	if err := f.do("set replayed"); err != nil {
		return err
	}
	f.volume.Access = lvm.AccessReadOnly
	return nil
}
func (f *fake) Device(context.Context, lvm.ID, string) (string, bool, error) {
	if f.moved && f.held > 0 {
		return "/dev/dm-9", true, nil
	}
	return "/dev/dm-3", f.active, nil
}
func (f *fake) ActiveDevices(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error) {
	return allDevices(ctx, f, volumes)
}

// allDevices asks for the device of each volume.
func allDevices(ctx context.Context, of Devices, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error) {
	all := map[lvm.ID]lvm.Device{}
	for _, v := range volumes {
		if path, active, err := of.Device(ctx, v.ID, v.UUID); err == nil && active {
			all[v.ID] = lvm.Device{Path: path}
		}
	}
	return all, nil
}
func (f *fake) Lookup(_ context.Context, id lvm.ID) (lvm.Volume, error) {
	if id != testID {
		return lvm.Volume{}, lvm.Errorf(lvm.KindNotLocal, "volume %s: its volume group is not on this node", id)
	}
	if f.lookups++; f.gone > 0 && f.lookups >= f.gone {
		return lvm.Volume{}, lvm.Errorf(lvm.KindNotFound, "volume %s is not ready: it has the state \"deleting\"", id)
	}
	v := f.volume
	v.ID, v.UUID, v.Class = id, "uuid", f.luks.class
	return v, nil
}

func (f *fake) Inspect(path string) (mount.PathInfo, error) {
	p := mount.PathInfo{Path: path, Mount: f.mounts[path], Kind: f.kinds[path]}
	if p.Kind == mount.PathDevice {
		p.Device = f.boundAt(path)
	}
	return p, nil
}
func (f *fake) Mounts(device string) (points []mount.Point, err error) {
	for _, path := range slices.Sorted(maps.Keys(f.mounts)) {
		if device == mappingPath && f.mounts[path].Device != mappingDevice {
			continue
		}
		points = append(points, mount.Point{Path: path, ReadOnly: f.mounts[path].ReadOnly})
	}
	return points, nil
}
func (f *fake) AllMounts() (map[mount.DeviceNumber][]mount.Point, error) {
	all := map[mount.DeviceNumber][]mount.Point{}
	for _, path := range slices.Sorted(maps.Keys(f.mounts)) {
		number := f.mounts[path].Device
		if f.kinds[path] == mount.PathDevice {
			number = f.boundAt(path)
		}
		all[number] = append(all[number], mount.Point{Path: path, ReadOnly: f.mounts[path].ReadOnly})
	}
	return all, nil
}
func (f *fake) RawDevices() (numbers []mount.DeviceNumber, err error) {
	for path := range f.mounts {
		if f.kinds[path] == mount.PathDevice {
			numbers = []mount.DeviceNumber{f.boundAt(path)}
		}
	}
	return numbers, nil
}
func (f *fake) Stat(device string) (mount.BlockDevice, error) {
	return mount.BlockDevice{Number: numberAt(device), Size: lvm.GiB}, nil
}
func (f *fake) OpenDevice(device string) (mount.BlockDevice, func(), error) {
	f.held++
	return mount.BlockDevice{Number: numberAt(device), Size: lvm.GiB}, func() { f.held-- }, nil
}
func (f *fake) Binding(lvm.ID) (func(), error) {
	f.binding++
	return func() { f.binding-- }, nil
}

func (f *fake) Opening(lvm.ID, string) (func(), error) {
	if f.holding {
		return nil, lvm.Errorf(lvm.KindBusy, "about to be held")
	}
	f.opening++
	return func() { f.opening-- }, nil
}
func (f *fake) Owns(_ context.Context, id lvm.ID, device uint64) (bool, error) {
	return id == testID && mount.DeviceNumber(device) == ourDevice, nil
}
func (f *fake) Probe(_ context.Context, device string, mark filesystem.Mark) (filesystem.Content, error) {
	f.probed[device] = mark
	if content, other := f.contents[device]; other {
		return content, nil
	}
	return f.content, nil
}
func (f *fake) Format(_ context.Context, w filesystem.Formatting) error {
	words := append([]string{w.Type, w.Device}, w.Options...)
	if w.Clear {
		words = append(words, "(clear)")
	}
	return f.do("format %s", strings.Join(words, " "))
}
func (f *fake) RemoveMark(device string, mark filesystem.Mark) error {
	if content, other := f.contents[device]; other && !content.Marked || !other && !f.content.Marked {
		return nil
	}
	return f.do("remove mark %s %s", device, mark.UUID)
}
func (f *fake) WriteMark(device string, mark filesystem.Mark) error {
	return f.do("write mark %s %s at %d", device, mark.UUID, mark.First)
}
func (f *fake) SetUUID(_ context.Context, device, _ string) error {
	return f.do("set UUID %s", device)
}
func (f *fake) CanResize(string, string) (bool, error) { return f.lags, nil }
func (f *fake) Resize(device, path, _ string) error {
	err := f.do("resize %s %s", device, path)
	f.lags = f.lags && err != nil
	return err
}
func (f *fake) ReadAt(_ string, offset int64, bytes int) ([]byte, error) {
	if f.during != nil {
		f.during("read")
	}
	f.reads++
	data := make([]byte, bytes)
	for at, content := range f.onDevice {
		if at >= offset && at < offset+int64(bytes) {
			copy(data[at-offset:], content)
		}
	}
	return data, nil
}
func (f *fake) SyncDevice(device string) error        { return f.do("sync %s", device) }
func (f *fake) Failed() ([]mount.DeviceNumber, error) { return f.failed, nil }
func (f *fake) List(context.Context) ([]lvm.Volume, error) {
	return []lvm.Volume{{ID: testID, UUID: "uuid", Group: "vg-a", Claim: "shop/data", Class: f.luks.class, Limits: f.volume.Limits}}, nil
}
func (f *fake) Fsck(_ context.Context, device, fsType string) error {
	return f.do("check %s %s", fsType, device)
}
func (f *fake) CreateMountPoint(path string, file bool) ([]string, error) {
	f.kinds[path] = mount.PathEmptyDir
	if file {
		f.kinds[path] = mount.PathEmptyFile
	}
	return []string{path}, f.do("create %s", path)
}
func (f *fake) Mount(device, target, fsType string, options []string) error {
	err := f.do("mount %s %s %s %s", device, target, fsType, strings.Join(options, ","))
	if err == nil {
		all := strings.Split(strings.Join(options, ","), ",") // the last of ro and rw counts
		readOnly := slices.Contains(all, "ro") && !slices.Contains(all[slices.Index(all, "ro"):], "rw")
		f.mounts[target] = fsMount(numberAt(device), readOnly)
		f.mounts[target].FSType = fsType
	}
	return err
}
func (f *fake) Bind(source, target string, readOnly bool) error {
	err := f.do("bind %s %s %s", source, target, access(readOnly))
	if err == nil {
		f.mounts[target] = fsMount(numberAt(source), readOnly)
		if m := f.mounts[source]; m != nil {
			f.mounts[target].Device = m.Device
		}
		if f.kinds[target] == mount.PathEmptyFile {
			if f.binding != 1 {
				err = errors.New("the device can be replaced while it is bound")
			}
			f.kinds[target] = mount.PathDevice
		}
	}
	return err
}
func (f *fake) ReadOnly(string) (bool, error) { return f.readOnly, nil }
func (f *fake) SetReadOnly(device string, readOnly bool) error {
	f.readOnly = readOnly
	return f.do("set %s %s", device, access(readOnly))
}
func (f *fake) Unmount(path string) error {
	err := f.do("unmount %s", path)
	if err == nil {
		delete(f.mounts, path)
		if f.kinds[path] == mount.PathDevice {
			f.kinds[path] = mount.PathEmptyFile
		}
	}
	return err
}
func (f *fake) RemoveMountPoint(path string) error {
	if _, there := f.kinds[path]; !there {
		return nil
	}
	delete(f.kinds, path)
	return f.do("remove %s", path)
}
func (f *fake) FileSystems() (map[mount.DeviceNumber][]mount.FileSystem, error) {
	all := map[mount.DeviceNumber][]mount.FileSystem{}
	for _, path := range slices.Sorted(maps.Keys(f.mounts)) {
		m := f.mounts[path]
		all[m.Device] = append(all[m.Device], mount.FileSystem{Path: path, Type: m.FSType, ReadOnly: m.ReadOnly})
	}
	return all, nil
}
func (f *fake) Trim(m mount.FileSystem, from, device lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	return 5, device, f.do("trim %s %d of %s", m.Path, from, device)
}
func (f *fake) Sync(m mount.FileSystem) error {
	if f.syncing != nil {
		<-f.syncing
	}
	return f.do("sync %s", m.Path)
}
func (f *fake) UsageOf(m mount.FileSystem) (mount.Usage, error) {
	if f.usage != nil {
		return f.usage(m)
	}
	return fullUsage, nil
}

// fullUsage is what a fake's file systems have, unless a test says otherwise.
var fullUsage = mount.Usage{Total: 100, Used: 60, Available: 30, Inodes: 10, InodesUsed: 4, InodesFree: 6}
