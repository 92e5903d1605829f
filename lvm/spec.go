package lvm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxName is CSI's limit for a name (spec, "Size Limits").
const maxName = 128

// CheckSpec returns the spec with defaults, or an error that says why no node can provide it.
func CheckSpec(spec Spec) (Spec, error) {
	if err := CheckName("volume", spec.Name); err != nil {
		return spec, err
	}
	class, err := CheckClass(spec.Class)
	if err != nil {
		return spec, err
	}
	spec.Class = class
	if spec.Limits != (Limits{}) {
		if err := spec.Limits.check(); err != nil {
			return spec, err
		}
	}
	switch {
	case spec.Required < 0 || spec.Limit < 0:
		return spec, Errorf(KindOutOfRange, "volume %q: a size cannot be negative (required %d bytes, limit %d bytes)", spec.Name, spec.Required, spec.Limit)
	case spec.Limit > 0 && spec.Required > spec.Limit:
		return spec, Errorf(KindOutOfRange, "volume %q: the required %d bytes are more than the limit of %d bytes", spec.Name, spec.Required, spec.Limit)
	case spec.Source != ID{} && class.Layout != LayoutThin:
		return spec, Errorf(KindInvalid, "volume %q: only a thin volume can begin as %s, and its class has the layout %s: use a class with layout: thin", spec.Name, spec.Source.Description(), class.Layout)
	case spec.Access != AccessWritable && spec.Source == ID{}:
		return spec, Errorf(KindInvalid, "volume %q: only a copy of a snapshot or volume can be read-only, and this one would be empty", spec.Name)
	}
	return spec, nil
}

func CheckName(what, name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return Errorf(KindInvalid, "a %s's name must be 1 to %d bytes of UTF-8, not %q", what, maxName, name)
	}
	return nil
}

// CheckClass returns the class with defaults, or an error that says why no volume can have it.
func CheckClass(class Class) (Class, error) {
	class.Layout = cmp.Or(class.Layout, LayoutLinear)
	if !slices.Contains(Layouts, class.Layout) {
		return class, Errorf(KindInvalid, "the layout %q is not known; use %s", class.Layout, strings.Join(layoutNames(), ", "))
	}
	for _, p := range Parameters {
		if err := p.withDefault(&class); err != nil {
			return class, err
		}
	}
	return class, CheckGroup(class.Group)
}

// WithoutGroup returns the class without its group, to compare layouts.
func (class Class) WithoutGroup() Class {
	class.Group = ""
	return class
}

// Description describes the class for messages, without its group.
func (class Class) Description() string {
	words := string(class.Layout)
	for _, p := range Parameters {
		if value := p.Describe(class.WithoutGroup()); value != "" && p.Name != "layout" {
			words += fmt.Sprintf(", %s: %s", p.Name, value)
		}
	}
	return words
}

// Legs returns the number of a volume's legs, each on another disk; 0 for a layout without legs.
func (class Class) Legs() int {
	if class.Stripes == 0 && class.Mirrors == 0 {
		return 0
	}
	return max(1, class.Stripes)*(1+class.Mirrors) + class.Layout.ParityLegs()
}

// ParityLegs returns the number of a layout's legs that hold no data.
func (layout Layout) ParityLegs() int {
	switch layout {
	case LayoutRAID5:
		return 1
	case LayoutRAID6:
		return 2
	default:
		return 0
	}
}

// StripeExtents returns the unit of a volume's size: one extent on each data leg.
func (class Class) StripeExtents() Extents { return Extents(max(1, class.Stripes)) }

// IsRAID reports whether the legs have RAID metadata.
func (class Class) IsRAID() bool { return strings.HasPrefix(string(class.Layout), "raid") }
