package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// diskActions are what ActOnDisk can do.
var diskActions = map[string]func(*monitor, hardwareDisk) error{
	"pull": pullDisk, "return": returnDisk, "fail": failDisk, "repair": repairDisk,
	"block": func(m *monitor, d hardwareDisk) error { return slowDisk(m, d, 1) },
	"slow":  func(m *monitor, d hardwareDisk) error { return slowDisk(m, d, slowDiskRate) },
}

// slowDiskRate is the rate of a disk that is slow, in bytes a second.
const slowDiskRate = 256 << 10

// DiskActions returns the actions of ActOnDisk.
func DiskActions() []string { return slices.Sorted(maps.Keys(diskActions)) }

// ActOnDisk acts on a disk of a node on emulated hardware. "pull" removes it from its slot, whoever uses it, and waits until the node's
// kernel has let it go; "return" puts it back with its content. "fail" lets its reads and writes fail with an I/O error until
// "repair"; the node still sees the disk. "block" lets them wait instead, but for the first one, and "slow" limits their rate; a reset of the disk's
// controller completes those that wait.
func (l *Lab) ActOnDisk(ctx context.Context, action, node, disk string) error {
	act, found := diskActions[action]
	if !found {
		return fmt.Errorf("no action %q; there are %s", action, strings.Join(DiskActions(), ", "))
	}
	d, err := findHardwareDisk(disk)
	if err != nil {
		return err
	}
	if err := l.onMonitor(ctx, node, func(m *monitor) error { return act(m, d) }); err != nil {
		return fmt.Errorf("%s disk %s of %s: %w", action, disk, node, err)
	}
	return nil
}

func pullDisk(m *monitor, d hardwareDisk) error {
	if err := m.run("device_del", map[string]any{"id": d.deviceID()}); err != nil {
		return err
	}
	return m.awaitRemoval(d.deviceID())
}

func returnDisk(m *monitor, d hardwareDisk) error { return m.run("device_add", d.device()) }

func failDisk(m *monitor, d hardwareDisk) error {
	var always []map[string]any
	for _, kind := range []string{"read", "write", "write-zeroes", "discard"} { // qemu itself flushes before a repair
		always = append(always, map[string]any{"event": "none", "iotype": kind, "errno": int(unix.EIO)})
	}
	faulty := map[string]any{"driver": "blkdebug", "node-name": d.faultyNode(), "image": d.fileNode(), "inject-error": always, "discard": "unmap"}
	return putOver(m, d, faulty)
}

// slowDisk limits a disk's reads and writes to so many bytes a second.
func slowDisk(m *monitor, d hardwareDisk, rate int64) error {
	limits := map[string]any{"qom-type": "throttle-group", "id": d.limits(), "limits": map[string]any{"bps-total": rate}}
	if err := m.run("object-add", limits); err != nil {
		return err
	}
	return putOver(m, d, map[string]any{"driver": "throttle", "node-name": d.faultyNode(), "throttle-group": d.limits(), "file": d.fileNode(), "discard": "unmap"})
}

// putOver adds a block device over the file of a disk, and puts the disk over it.
func putOver(m *monitor, d hardwareDisk, node map[string]any) error {
	if err := m.run("blockdev-add", node); err != nil {
		return err
	}
	return m.run("blockdev-reopen", d.over(d.faultyNode()))
}

func repairDisk(m *monitor, d hardwareDisk) error {
	if err := m.run("blockdev-reopen", d.over(d.fileNode())); err != nil {
		return err
	}
	if err := m.run("blockdev-del", map[string]any{"node-name": d.faultyNode()}); err != nil {
		return err
	}
	_ = m.run("object-del", map[string]any{"id": d.limits()}) // a disk that failed has none
	return nil
}

func (d hardwareDisk) faultyNode() string { return d.name + "-faulty" }
func (d hardwareDisk) limits() string     { return d.name + "-limits" }

// over returns the arguments that put d's block device over another one.
func (d hardwareDisk) over(file string) map[string]any {
	return map[string]any{"options": []map[string]any{{"driver": "raw", "node-name": d.name, "discard": "unmap", "detect-zeroes": "unmap", "file": file}}}
}
