package lvm

import "unicode/utf8"

// maxName is the limit of a name in CSI (spec, "Size Limits").
const maxName = 128

// checkSpec returns the spec with its defaults filled in, or why no node can ever meet it.
func checkSpec(spec Spec) (Spec, error) {
	if spec.Name == "" || len(spec.Name) > maxName || !utf8.ValidString(spec.Name) {
		return spec, Errorf(KindInvalid, "a volume's name must be 1 to %d bytes of UTF-8, not %q", maxName, spec.Name)
	}
	class, err := checkClass(spec.Class)
	if err != nil {
		return spec, err
	}
	spec.Class = class
	switch {
	case spec.Required < 0 || spec.Limit < 0:
		return spec, Errorf(KindOutOfRange, "volume %q: a size cannot be negative (required %d bytes, limit %d bytes)", spec.Name, spec.Required, spec.Limit)
	case spec.Limit > 0 && spec.Required > spec.Limit:
		return spec, Errorf(KindOutOfRange, "volume %q: the required %d bytes are more than the limit of %d bytes", spec.Name, spec.Required, spec.Limit)
	}
	return spec, nil
}

// checkClass returns the class with its defaults filled in, or why it can never be served.
func checkClass(class Class) (Class, error) {
	if class.Layout == "" {
		class.Layout = LayoutLinear
	}
	if class.Wipe == "" {
		class.Wipe = WipeZero
	}
	switch {
	case class.Layout != LayoutLinear:
		return class, Errorf(KindInvalid, "the layout %q is not available; use %q", class.Layout, LayoutLinear)
	case class.Wipe != WipeZero && class.Wipe != WipeNone:
		return class, Errorf(KindInvalid, "wipe is %q; use %q or %q", class.Wipe, WipeZero, WipeNone)
	}
	return class, checkGroup(class.Group)
}

// size is what the volume will at least have: the default where none is asked for, as far as the limit allows it.
func (spec Spec) size() Bytes {
	switch {
	case spec.Required > 0:
		return spec.Required
	case spec.Limit > 0:
		return min(DefaultSize, spec.Limit)
	default:
		return DefaultSize
	}
}

// extents rounds the size up to whole extents of the group; where nothing was required and only the limit stands in the
// way, down. KindOutOfRange: rounded up, it would pass the limit.
func (spec Spec) extents(g Group) (Extents, error) {
	size := spec.size()
	n := Extents((size-1)/g.ExtentSize) + 1 // written so that 2^63-1 does not overflow
	if spec.Limit == 0 || n <= Extents(spec.Limit/g.ExtentSize) {
		return n, nil
	}
	if fit := Extents(spec.Limit / g.ExtentSize); spec.Required == 0 && fit > 0 {
		return fit, nil
	}
	return 0, Errorf(KindOutOfRange, "volume group %s gives whole extents of %s: %d bytes would take %d of them, which pass the limit of %d bytes", g.Name, g.ExtentSize, size, n, spec.Limit)
}
