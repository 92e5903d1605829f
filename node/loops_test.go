//go:build realfs

package node

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// loops are volumes on loop devices, by logical volume name.
type loops map[string]string

func (l loops) Device(_ context.Context, id lvm.ID, _ string) (string, bool, error) {
	device, ok := l[id.LV]
	return device, ok, nil
}

func (loops) Binding(lvm.ID) (func(), error) { return func() {}, nil }

func (loops) Opening(lvm.ID, string) (func(), error) { return func() {}, nil }

func (l loops) ActiveDevices(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error) {
	return allDevices(ctx, l, volumes)
}

func (l loops) ActivateAs(ctx context.Context, id lvm.ID, _ string, _ lvm.Encryption) (lvm.Volume, string, error) {
	return l.activateAs(ctx, id, l)
}

// activateAs returns the volume as Lookup does.
func (l loops) activateAs(ctx context.Context, id lvm.ID, of Devices) (lvm.Volume, string, error) {
	v, err := of.Lookup(ctx, id)
	return v, l[id.LV], err
}

func (l loops) BeginReplay(ctx context.Context, id lvm.ID, uuid string) error {
	return l.SetReplayed(ctx, id, uuid)
}

func (l loops) SetReplayed(_ context.Context, id lvm.ID, _ string) error {
	return lvm.Errorf(lvm.KindInvalid, "volume %s is writable", id)
}

func (l loops) Owns(_ context.Context, id lvm.ID, device uint64) (bool, error) {
	var stat unix.Stat_t
	return l[id.LV] != "" && unix.Stat(l[id.LV], &stat) == nil && stat.Rdev == device, nil
}

func (l loops) Lookup(_ context.Context, id lvm.ID) (lvm.Volume, error) {
	if _, ok := l[id.LV]; !ok {
		return lvm.Volume{}, lvm.Errorf(lvm.KindNotFound, "volume %s is gone", id)
	}
	return lvm.Volume{ID: id, UUID: "uuid-of-" + id.LV}, nil
}

func (l loops) List(context.Context) (volumes []lvm.Volume, err error) {
	for name := range l {
		volumes = append(volumes, lvm.Volume{ID: lvm.ID{VG: vgUUID, LV: name}, UUID: "uuid-of-" + name, Group: "vg"})
	}
	return volumes, nil
}

// markedLoops are loop devices, some with a tag that says where their format mark is, as the driver creates volumes.
type markedLoops struct {
	loops
	marks map[string]lvm.Bytes // by logical volume
}

func (l markedLoops) ActivateAs(ctx context.Context, id lvm.ID, _ string, _ lvm.Encryption) (lvm.Volume, string, error) {
	return l.activateAs(ctx, id, l)
}

func (l markedLoops) Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	v, err := l.loops.Lookup(ctx, id)
	v.FormatMark = l.marks[id.LV]
	return v, err
}
