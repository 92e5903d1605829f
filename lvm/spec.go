package lvm

import (
	"cmp"
	"fmt"
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
	switch {
	case spec.Required < 0 || spec.Limit < 0:
		return spec, Errorf(KindOutOfRange, "volume %q: a size cannot be negative (required %d bytes, limit %d bytes)", spec.Name, spec.Required, spec.Limit)
	case spec.Limit > 0 && spec.Required > spec.Limit:
		return spec, Errorf(KindOutOfRange, "volume %q: the required %d bytes are more than the limit of %d bytes", spec.Name, spec.Required, spec.Limit)
	case spec.Source != ID{} && class.Layout != LayoutThin:
		return spec, Errorf(KindInvalid, "volume %q: only a thin volume can begin as %s, and its class has the layout %s: use a class with layout: thin", spec.Name, spec.Source.Description(), class.Layout)
	}
	return spec, nil
}

func CheckName(what, name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) {
		return Errorf(KindInvalid, "a %s's name must be 1 to %d bytes of UTF-8, not %q", what, maxName, name)
	}
	return nil
}

// bounds is the range of a number in a class, and its default. The zero bounds: the layout has no such number.
type bounds struct{ least, most, usual int }

// rule has the limits of a layout. LVM's own limits are 128 stripes and 64 RAID legs (lvcreate(8), lvmraid(7)).
type rule struct {
	stripes, mirrors, overprovision bounds
	Parity                          int // parity legs
}

var Rules = map[Layout]rule{
	LayoutLinear:  {},
	LayoutStriped: {stripes: bounds{2, 128, 2}},
	LayoutRAID1:   {mirrors: bounds{1, 9, 1}},
	LayoutRAID5:   {stripes: bounds{2, 63, 2}, Parity: 1},
	LayoutRAID6:   {stripes: bounds{3, 62, 3}, Parity: 2},
	LayoutRAID10:  {stripes: bounds{2, 32, 2}, mirrors: bounds{1, 1, 1}},
	LayoutThin:    {overprovision: bounds{100, 10000, 100}},
}

// The stripe sizes that LVM accepts (lvcreate(8), --stripesize); a volume group's extent size may allow less.
const (
	minStripe     = 4 * KiB
	maxStripe     = 512 * MiB
	defaultStripe = 64 * KiB
)

// CheckClass returns the class with defaults, or an error that says why no volume can have it.
func CheckClass(class Class) (Class, error) {
	class.Layout = cmp.Or(class.Layout, LayoutLinear)
	r, known := Rules[class.Layout]
	if !known {
		return class, Errorf(KindInvalid, "the layout %q is not known; use linear, striped, raid1, raid5, raid6, raid10 or thin", class.Layout)
	}
	for _, number := range []struct {
		name   string
		value  *int
		bounds bounds
	}{{"stripes", &class.Stripes, r.stripes}, {"mirrors", &class.Mirrors, r.mirrors}, {"overprovisionRatio", &class.Overprovision, r.overprovision}} {
		if err := number.bounds.check(class.Layout, number.name, number.value); err != nil {
			return class, err
		}
	}
	if err := checkStripeSize(&class, r.stripes != bounds{}); err != nil {
		return class, err
	}
	if err := checkThin(&class); err != nil {
		return class, err
	}
	if err := checkEncryption(class); err != nil {
		return class, err
	}
	return class, CheckGroup(class.Group)
}

// check sets the default for 0, and refuses what the layout does not allow.
func (s bounds) check(layout Layout, name string, value *int) error {
	switch {
	case s == bounds{} && *value != 0:
		return Errorf(KindInvalid, "the layout %s does not use %s (given: %d): omit it", layout, name, *value)
	case *value == 0:
		*value = s.usual
	case *value < s.least || *value > s.most:
		return Errorf(KindInvalid, "%s is %d; the layout %s allows %d to %d", name, *value, layout, s.least, s.most)
	}
	return nil
}

func checkStripeSize(class *Class, striped bool) error {
	size := class.StripeSize
	switch {
	case !striped && size != 0:
		return Errorf(KindInvalid, "the layout %s does not use stripeSize (given: %s): omit it", class.Layout, size)
	case striped && size == 0:
		class.StripeSize = defaultStripe
	case striped && (size < minStripe || size > maxStripe || size&(size-1) != 0):
		return Errorf(KindInvalid, "stripeSize is %d bytes; use a power of two from %s to %s, at most the extent size of the volume group", size, minStripe, maxStripe)
	}
	return nil
}

// checkThin checks the fields that only thin volumes have. It refuses Wipe for them: their pool zeroes each new block, so the
// driver wipes nothing.
func checkThin(class *Class) error {
	if class.Layout != LayoutThin {
		class.Wipe = cmp.Or(class.Wipe, WipeZero)
		switch {
		case class.Pool != "":
			return Errorf(KindInvalid, "the layout %s does not use thinPool (given: %q): omit it", class.Layout, class.Pool)
		case class.Wipe != WipeZero && class.Wipe != WipeNone:
			return Errorf(KindInvalid, "wipe is %q; use %q or %q", class.Wipe, WipeZero, WipeNone)
		}
		return nil
	}
	class.Pool = cmp.Or(class.Pool, DefaultPool)
	if class.Wipe != "" {
		return Errorf(KindInvalid, "a thin volume is not wiped, because its pool zeroes new blocks: remove wipe (its value is %q)", class.Wipe)
	}
	return checkPool(class.Pool)
}

// WithoutGroup returns the class without its group, to compare layouts.
func (class Class) WithoutGroup() Class {
	class.Group = ""
	return class
}

// Description describes the class's layout for messages.
func (class Class) Description() string {
	words := string(class.Layout)
	for _, part := range []struct {
		text string
		said bool
	}{
		{fmt.Sprintf(", stripes: %d of %s", class.Stripes, class.StripeSize), class.Stripes > 0},
		{fmt.Sprintf(", mirrors: %d", class.Mirrors), class.Mirrors > 0},
		{fmt.Sprintf(", thinPool: %s, overprovisionRatio: %d %%", class.Pool, class.Overprovision), class.Pool != ""},
		{fmt.Sprintf(", wipe: %s", class.Wipe), class.Wipe != ""},
		{fmt.Sprintf(", encryption: %s", class.Encryption), class.Encryption != EncryptionNone},
	} {
		if part.said {
			words += part.text
		}
	}
	return words
}

// Legs returns the number of a volume's legs, each on another disk; 0 for a layout without legs.
func (class Class) Legs() int {
	if class.Stripes == 0 && class.Mirrors == 0 {
		return 0
	}
	return max(1, class.Stripes)*(1+class.Mirrors) + Rules[class.Layout].Parity
}

// StripeExtents returns the unit of a volume's size: one extent on each data leg.
func (class Class) StripeExtents() Extents { return Extents(max(1, class.Stripes)) }

// IsRAID reports whether the legs have RAID metadata.
func (class Class) IsRAID() bool { return strings.HasPrefix(string(class.Layout), "raid") }

// WithDefaults returns the class with defaults, so that it can be compared with a volume's. KindInvalid: no volume can have it.
func (class Class) WithDefaults() (Class, error) { return CheckClass(class) }

// Size returns the volume's minimum size: if the request has none, the default, but at most the limit.
func (spec Spec) Size() Bytes {
	switch {
	case spec.Required > 0:
		return spec.Required
	case spec.Limit > 0:
		return min(DefaultSize, spec.Limit)
	default:
		return DefaultSize
	}
}

// Extents returns the size in extents, rounded up to whole stripes. Without a required size, it rounds down if only the limit
// prevents rounding up. KindOutOfRange: the rounded size exceeds the limit.
func (spec Spec) Extents(g Group) (Extents, error) {
	row := spec.Class.StripeExtents()
	n := RoundUpToStripes(g, spec.Class.DeviceSize(spec.Size()), row)
	most := Extents(spec.Class.MaxDeviceSize(spec.Limit) / g.ExtentSize)
	if spec.Limit == 0 || n <= most {
		return n, nil
	}
	if fit := most / row * row; spec.Required == 0 && spec.Class.DataSize(g.Bytes(fit)) > 0 {
		return fit, nil
	}
	return 0, LimitError(g, row, n, spec.Size(), spec.Limit)
}

// RoundUpToStripes returns a size in extents, rounded up to whole stripes. It does not overflow for any size.
func RoundUpToStripes(g Group, size Bytes, row Extents) Extents {
	n := Extents((size-1)/g.ExtentSize) + 1
	return (n-1)/row*row + row
}

func LimitError(g Group, row, n Extents, size, limit Bytes) error {
	return Errorf(KindOutOfRange, "volume group %s allocates whole extents of %s, here %d at a time: %d bytes need %d of them, which exceeds the limit of %d bytes", g.Name, g.ExtentSize, row, size, n, limit)
}
