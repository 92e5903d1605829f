package lvm

import (
	"cmp"
	"path"
)

// selectorMatches tells whether the device meets all conditions; named, whether a pattern without wildcards names it.
func selectorMatches(s Selector, d disk) (selected, named bool) {
	for _, pattern := range s.Paths {
		for _, name := range d.names() {
			if ok, err := path.Match(pattern, name); err == nil && ok {
				selected = true
				named = named || pattern == name
			}
		}
	}
	model, err := path.Match(cmp.Or(s.Model, "*"), d.model)
	switch {
	case len(s.Paths) > 0 && !selected:
		return false, false
	case d.size < s.MinSize || s.MaxSize > 0 && d.size > s.MaxSize:
		return false, false
	case s.Rotational != nil && *s.Rotational != d.rotational:
		return false, false
	case s.Model != "" && (err != nil || !model):
		return false, false
	}
	return true, named
}

// declarationMatches tells whether the group wants the device.
func declarationMatches(d Declaration, device disk) (selected, named bool) {
	for _, s := range d.Devices {
		yes, exactly := selectorMatches(s, device)
		selected, named = selected || yes, named || exactly
	}
	return selected, named
}
