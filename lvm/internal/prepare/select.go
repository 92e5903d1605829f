package prepare

import (
	"cmp"
	"path"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// selectorMatches reports whether the device meets all conditions, and as named, whether a pattern without wildcards matches
// it.
func selectorMatches(s lvm.Selector, d ondisk.Disk) (selected, named bool) {
	for _, pattern := range s.Paths {
		for _, name := range d.Names() {
			if ok, err := path.Match(pattern, name); err == nil && ok {
				selected = true
				named = named || pattern == name
			}
		}
	}
	model, err := path.Match(cmp.Or(s.Model, "*"), d.Model)
	switch {
	case len(s.Paths) > 0 && !selected:
		return false, false
	case d.Size < s.MinSize || s.MaxSize > 0 && d.Size > s.MaxSize:
		return false, false
	case s.Rotational != nil && *s.Rotational != d.Rotational:
		return false, false
	case s.Model != "" && (err != nil || !model):
		return false, false
	}
	return true, named
}

// declarationMatches reports whether the group selects the device.
func declarationMatches(d lvm.Declaration, device ondisk.Disk) (selected, named bool) {
	for _, s := range d.Devices {
		yes, exactly := selectorMatches(s, device)
		selected, named = selected || yes, named || exactly
	}
	return selected, named
}

// namesHardware reports whether the group selects the device by a name below /dev/disk without wildcards: another disk can get a name
// such as /dev/sdb.
func namesHardware(d lvm.Declaration, device ondisk.Disk) bool {
	return slices.ContainsFunc(d.Devices, func(s lvm.Selector) bool {
		_, named := selectorMatches(s, device)
		return named && slices.ContainsFunc(s.Paths, func(path string) bool { return slices.Contains(device.Links, path) })
	})
}
