package lvm

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Declaration declares a volume group that prepare creates and extends from a node's disks.
type Declaration struct {
	Name       VGName
	Tags       []string
	Devices    []Selector // the volume group gets the devices that one of these selects; the first declaration that selects a device gets it
	MaxDevices int        // the limit of its devices; 0: none
	Pool       PoolPolicy // zero: the driver creates a pool for the first thin volume
}

// Selector selects the devices that meet all of its conditions.
type Selector struct {
	Paths      []string // patterns (path.Match) for the device's path or its names in /dev/disk, of which one must match; empty: any
	MinSize    Bytes
	MaxSize    Bytes  // 0: no limit
	Rotational *bool  // nil: any
	Model      string // a pattern; "": any
}

// PoolPolicy is how the driver creates and extends a thin pool.
type PoolPolicy struct {
	Name                        string // DefaultPool by default
	Size                        Bytes  // of its data, created ahead of the first volume; 0: created with the first volume
	AutoextendThreshold         int    // percentage of data use from which the driver extends it; 80 by default
	MetadataAutoextendThreshold int    // the same for metadata; 60 by default
}

// CheckDeclarations returns the declarations with defaults. KindInvalid: one is wrong.
func CheckDeclarations(declared []Declaration) ([]Declaration, error) {
	checked := slices.Clone(declared)
	for i := range checked {
		d := &checked[i]
		if err := CheckGroup(string(d.Name)); err != nil || d.Name == "" || d.Name[0] == '@' {
			return nil, Errorf(KindInvalid, "volume group %q: give a name of letters, digits and _ + . -, not - in front", d.Name)
		}
		if slices.ContainsFunc(checked[:i], func(other Declaration) bool { return other.Name == d.Name }) {
			return nil, Errorf(KindInvalid, "volume group %s is declared twice", d.Name)
		}
		for _, tag := range d.Tags {
			if err := CheckGroup("@" + tag); err != nil || tag == "" {
				return nil, Errorf(KindInvalid, "volume group %s: %q is not a tag: use letters, digits and _ + . - / = ! : & #", d.Name, tag)
			}
		}
		if len(d.Devices) == 0 || d.MaxDevices < 0 {
			return nil, Errorf(KindInvalid, "volume group %s: name at least one selector of devices, and a limit of 0 (none) or more", d.Name)
		}
		for _, s := range d.Devices {
			if err := s.check(); err != nil {
				return nil, Errorf(KindInvalid, "volume group %s: %w", d.Name, err)
			}
		}
		if err := d.Pool.check(); err != nil {
			return nil, Errorf(KindInvalid, "volume group %s: %w", d.Name, err)
		}
	}
	return checked, nil
}

func (s Selector) check() error {
	if s.Paths != nil && len(s.Paths) == 0 {
		return Errorf(KindInvalid, "paths is an empty list, which selects nothing: omit it, or write paths: [\"/dev/*\"] to select every disk")
	}
	if len(s.Paths) == 0 && s.MinSize == 0 && s.MaxSize == 0 && s.Rotational == nil && s.Model == "" {
		return Errorf(KindInvalid, "a selector without conditions selects every disk: add a condition, or write paths: [\"/dev/*\"] to select every disk")
	}
	if s.MinSize < 0 || s.MaxSize < 0 || s.MaxSize > 0 && s.MaxSize < s.MinSize {
		return Errorf(KindInvalid, "sizes from %s to %s select nothing", s.MinSize, s.MaxSize)
	}
	for _, size := range []Bytes{s.MinSize, s.MaxSize} {
		if size > 0 && size < MinDeviceSize {
			return Errorf(KindInvalid, "a size of %d bytes cannot be right, because the smallest usable device has %s: give a unit, such as 100Gi", size, MinDeviceSize)
		}
	}
	for _, pattern := range append(slices.Clone(s.Paths), s.Model) {
		if _, err := path.Match(pattern, ""); err != nil {
			return Errorf(KindInvalid, "the pattern %q is invalid: %w", pattern, err)
		}
	}
	for _, pattern := range s.Paths {
		if !strings.HasPrefix(pattern, "/dev/") {
			return Errorf(KindInvalid, "the pattern %q is not a path below /dev, such as /dev/disk/by-id/nvme-*", pattern)
		}
	}
	return nil
}

func (p *PoolPolicy) check() error {
	if *p == (PoolPolicy{}) {
		return nil
	}
	p.Name = cmp.Or(p.Name, DefaultPool)
	p.AutoextendThreshold, p.MetadataAutoextendThreshold = cmp.Or(p.AutoextendThreshold, PoolDataThreshold), cmp.Or(p.MetadataAutoextendThreshold, PoolMetadataThreshold)
	switch {
	case !NamePattern.MatchString(p.Name):
		return Errorf(KindInvalid, "%q is not a name for a thin pool", p.Name)
	case p.Size < 0 || p.Size > 0 && p.Size < PoolMetadataMin:
		return Errorf(KindInvalid, "cannot create a thin pool of %d bytes", p.Size)
	case p.AutoextendThreshold < 1 || p.AutoextendThreshold > 95 || p.MetadataAutoextendThreshold < 1 || p.MetadataAutoextendThreshold > 95:
		return Errorf(KindInvalid, "the autoextend thresholds of a thin pool must be 1 to 95 percent, not %d (data) and %d (metadata)", p.AutoextendThreshold, p.MetadataAutoextendThreshold)
	}
	return nil
}

const PoolDataThreshold = 80 // percent

const PoolMetadataThreshold = 60

const PoolMetadataMin = 2 * MiB

// MinDeviceSize is the smallest device that prepare accepts: LVM's metadata takes a part of it.
const MinDeviceSize = 16 * MiB
