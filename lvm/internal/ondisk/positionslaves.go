package ondisk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// slaves returns the names of the devices that a device is made of, and of those that were removed since. The kernel keeps the link
// to a removed device until the one on it closes it (Linux, block/holder.c, bd_unlink_disk_holder): the link then leads nowhere,
// and another device may have the name.
func (p Positions) slaves(name string) (below, removed []string, err error) {
	names, err := dm.ReadNames(p.path(name, "slaves"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	for _, slave := range names {
		var st unix.Stat_t
		link := p.path(name, "slaves", slave)
		switch err := unix.Stat(link, &st); {
		case errors.Is(err, unix.ENOENT), err == nil && !p.HasAttribute(slave, ""):
			removed = append(removed, slave)
		case err != nil:
			return nil, nil, &os.PathError{Op: "stat", Path: link, Err: err}
		default:
			below = append(below, slave)
		}
	}
	return below, removed, nil
}

// positionRemoved is the position of a device that is made of removed devices only: reads of it fail, and it may have had a
// physical volume.
func positionRemoved(name string, removed ...string) position {
	err := fmt.Errorf("%s is made of devices that were removed (%s)", name, strings.Join(removed, ", "))
	return position{MadeOf: madeOfRemoved, Reason: err.Error(), err: err}
}

// DevicesBelow returns the names of the devices below all of LVM's devices of a logical volume, and of those that were removed;
// each once, sorted.
func (p Positions) DevicesBelow(name string) (below, removed []string, err error) {
	below, removed, err = p.devicesBelow(name, 0)
	slices.Sort(below)
	slices.Sort(removed)
	return slices.Compact(below), slices.Compact(removed), err
}

func (p Positions) devicesBelow(name string, depth int) (below, removed []string, err error) {
	if depth > maxStack {
		return nil, nil, fmt.Errorf("more than %d devices are made of one another", maxStack)
	}
	parts, removed, err := p.slaves(name)
	if err != nil {
		return nil, nil, fmt.Errorf("the devices below %s cannot be listed: %w", name, err)
	}
	for _, part := range parts {
		uuid, err := dm.Attribute(p.Sys, part, "dm/uuid")
		if err != nil || !strings.HasPrefix(uuid, "LVM-") {
			below = append(below, part)
			continue
		}
		deeper, gone, err := p.devicesBelow(part, depth+1)
		if err != nil {
			return nil, nil, err
		}
		below, removed = append(below, deeper...), append(removed, gone...)
	}
	return below, removed, nil
}
