package lvm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Parameter is one parameter of a StorageClass. Its row in Parameters is the one place that says how it is written, which layouts
// have it, and where it goes: the parser, the tags, CheckClass, Description, lvcreate's options, the chart's schema and
// docs/reference/parameters.md follow from it.
type Parameter struct {
	Name    string
	Form    Form
	Choices []string         // the values of a FormChoice
	Layouts map[Layout]Range // those that have it; nil: each. Its range, if it is a number
	WhyNot  string           // a part of a sentence: why the other layouts do not have it, if that is not plain
	Default string           // of what is no number; "": none

	Tag    string // key of its LVM tag; "": LVM's own metadata has it
	Unsaid string // a value that needs no tag
	Option string // of lvcreate; "": LVM does not know it, and Effect says what does
	Effect string

	Meaning, Values string // in Markdown, for the reference page; without Values the page has what follows from the row

	field field // its place in a Class; nil: the volume does not depend on it, and Effect says what reads it
	check func(value string) error
}

// Range is the range of a number in a Class, and its default. A FormSize is in KiB, a FormRatio in percent.
type Range struct{ Least, Most, Default int }

// Form is how the values of a parameter are written in a StorageClass.
type Form int

const (
	FormText   Form = iota
	FormChoice      // one of Choices
	FormCount       // a whole number
	FormSize        // a power of two, with its unit
	FormRatio       // a factor with at most two decimals
)

// Parameters are the parameters that the driver knows. LVM's own limits are 128 stripes and 64 RAID legs (lvcreate(8), lvmraid(7)); its
// stripes have 4 KiB and more.
var Parameters = []Parameter{
	{
		Name: "volumeGroup", field: textField[string](func(c *Class) *string { return &c.Group }),
		Effect:  "the planner selects groups by it",
		Meaning: "volume group in which volumes are created", Values: "a group's name, or `@tag`: any group of the node with that LVM tag",
	}, {
		Name: "wipe", Form: FormChoice, Choices: []string{string(WipeZero), string(WipeNone)}, Default: string(WipeZero),
		Layouts: layoutsBut(LayoutThin), WhyNot: "a thin volume is not wiped, because its pool zeroes new blocks",
		Tag: "wipe", Unsaid: string(WipeZero), Effect: "the driver reads the tag when it deletes the volume",
		field:   textField[Wipe](func(c *Class) *Wipe { return &c.Wipe }),
		Meaning: "how a deleted volume is wiped",
		Values:  "`zero`: the driver zeroes it in the background, in at most half of the disk's time, before its extents are free; `none`: its extents are free at once, [with their data](../howto/volume-groups.md#what-free-extents-hold)",
	}, {
		Name: "layout", Form: FormChoice, Choices: layoutNames(), Default: string(LayoutLinear),
		Tag: "layout", Unsaid: string(LayoutLinear), Effect: "it selects the command (lvmcmd.CreateSteps)",
		field:   textField[Layout](func(c *Class) *Layout { return &c.Layout }),
		Meaning: "LVM layout; a `linear` volume is on one disk if any disk of the group holds it",
	}, {
		Name: "stripes", Form: FormCount,
		Layouts: map[Layout]Range{LayoutStriped: {2, 128, 2}, LayoutRAID5: {2, 63, 2}, LayoutRAID6: {3, 62, 3}, LayoutRAID10: {2, 32, 2}},
		Tag:     "stripes", Option: "-i",
		field:   countField(func(c *Class) *int { return &c.Stripes }),
		Meaning: "number of disks with data stripes",
	}, {
		Name: "stripeSize", Form: FormSize,
		Layouts: map[Layout]Range{LayoutStriped: anyStripe, LayoutRAID5: anyStripe, LayoutRAID6: anyStripe, LayoutRAID10: anyStripe},
		Tag:     "stripesize", Option: "-I",
		field:   kibField(func(c *Class) *Bytes { return &c.StripeSize }),
		Meaning: "size of a stripe", Values: "a power of two from `4Ki` to `512Mi`, at most an extent of the group",
	}, {
		Name: "mirrors", Form: FormCount,
		Layouts: map[Layout]Range{LayoutRAID1: {1, 9, 1}, LayoutRAID10: {1, 1, 1}},
		Tag:     "mirrors", Option: "-m",
		field:   countField(func(c *Class) *int { return &c.Mirrors }),
		Meaning: "number of additional copies",
	}, {
		Name: "thinPool", Layouts: map[Layout]Range{LayoutThin: {}}, Default: DefaultPool, check: checkPool,
		Option:  "--thinpool",
		field:   textField[string](func(c *Class) *string { return &c.Pool }),
		Meaning: "name of the thin pool; the driver creates it with the first volume", Values: "a name",
	}, {
		Name: "overprovisionRatio", Form: FormRatio, Layouts: map[Layout]Range{LayoutThin: {100, 10000, 100}},
		Tag: "overprovision", Effect: "the planner limits the pool's provisioned size by it",
		field:   countField(func(c *Class) *int { return &c.Overprovision }),
		Meaning: "maximum ratio of provisioned size to pool size",
	}, {
		Name: "encryption", Form: FormChoice, Choices: []string{string(EncryptionLUKS2)},
		Tag: keyEncryption, Effect: "the planner adds the header's size, and package node encrypts the volume",
		field:   textField[Encryption](func(c *Class) *Encryption { return &c.Encryption }),
		Meaning: "encryption of the volume; needs the Secrets below",
	}, {
		Name: "mkfsOptions", Effect: "package node passes them to mkfs",
		Meaning: "additional options for mkfs, such as `-i 65536 -L data`", Values: "only options that define the layout of the file system (below)",
	}, {
		Name: "restoreOnOtherNodes", Form: FormChoice, Choices: []string{"true", "false"}, Default: "false",
		Layouts: map[Layout]Range{LayoutThin: {}}, WhyNot: "only thin volumes are restored from snapshots, or cloned",
		Effect:  "the drivers of both nodes read it in the class when a claim is restored or cloned",
		Meaning: "restore snapshots and clone claims on other nodes than theirs, too, by a [full copy](../howto/snapshots.md#restore-on-another-node); needs the chart's `move.enabled`",
	},
}

var anyStripe = Range{Least: 4, Most: 512 * 1024, Default: 64}

// Layouts are all layouts.
var Layouts = []Layout{LayoutLinear, LayoutStriped, LayoutRAID1, LayoutRAID5, LayoutRAID6, LayoutRAID10, LayoutThin}

func layoutNames() (names []string) {
	for _, layout := range Layouts {
		names = append(names, string(layout))
	}
	return names
}

func layoutsBut(other Layout) map[Layout]Range {
	rest := map[Layout]Range{}
	for _, layout := range Layouts {
		if layout != other {
			rest[layout] = Range{}
		}
	}
	return rest
}

// FindParameter returns the parameter with this name.
func FindParameter(name string) (Parameter, bool) {
	i := slices.IndexFunc(Parameters, func(p Parameter) bool { return p.Name == name })
	if i < 0 {
		return Parameter{}, false
	}
	return Parameters[i], true
}

// ParameterNames returns the names of the parameters.
func ParameterNames() (names []string) {
	for _, p := range Parameters {
		names = append(names, p.Name)
	}
	return names
}

// In reports whether a layout has the parameter; the range is a number's.
func (p Parameter) In(layout Layout) (Range, bool) {
	if p.Layouts == nil {
		return Range{}, true
	}
	r, has := p.Layouts[layout]
	return r, has
}

// InClass reports whether the value is a field of Class.
func (p Parameter) InClass() bool { return p.field != nil }

// Value returns the class's value as a tag has it: a number in decimal digits; "": none.
func (p Parameter) Value(class Class) string {
	if p.field == nil {
		return ""
	}
	return p.field.get(&class)
}

// Set is the inverse of Value. The error says what is wrong with the value.
func (p Parameter) Set(class *Class, value string) error {
	if p.isNumber() {
		if n, err := strconv.Atoi(value); err != nil || n <= 0 || n > 1<<30 {
			return fmt.Errorf("%q is no positive number", value)
		}
	}
	if p.field != nil {
		p.field.set(class, value)
	}
	return nil
}

func (p Parameter) isNumber() bool {
	return p.Form == FormCount || p.Form == FormSize || p.Form == FormRatio
}

var (
	unitPattern   = regexp.MustCompile(`^([1-9][0-9]{0,6})([kKmM])i?B?$`)
	factorPattern = regexp.MustCompile(`^([0-9]{1,3})(?:\.([0-9]{1,2}))?$`)
)

// Parse sets the class's value to that of a StorageClass. The error says what the value can be. CheckClass checks whether the layout allows
// it. A size without a unit is refused: Kubernetes reads it as bytes, and lvcreate(8) as KiB.
func (p Parameter) Parse(class *Class, text string) error {
	value := text
	switch p.Form {
	case FormText:
		if text == "" && p.Default != "" {
			return fmt.Errorf("give a name, or omit it for %s", p.Default)
		}
	case FormChoice:
		if !slices.Contains(p.Choices, text) {
			return fmt.Errorf("it can be %s", strings.Join(p.Choices, ", "))
		}
	case FormCount:
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 1000 || text != strconv.Itoa(n) {
			return fmt.Errorf("give a whole number, 1 or more")
		}
	case FormSize:
		match := unitPattern.FindStringSubmatch(text)
		if match == nil {
			return fmt.Errorf("give a number with its unit, like 64Ki or 1Mi")
		}
		if value = match[1]; strings.EqualFold(match[2], "m") {
			n, _ := strconv.Atoi(match[1]) // at most seven digits
			value = strconv.Itoa(n * 1024)
		}
	case FormRatio:
		match := factorPattern.FindStringSubmatch(text)
		if match == nil {
			return fmt.Errorf("give a factor from 1 to 100 with at most two decimals, like 1 or 1.5")
		}
		percent, _ := strconv.Atoi(match[1] + (match[2] + "00")[:2])
		if percent < 100 || percent > 10000 {
			return fmt.Errorf("give a factor from 1 (no overprovisioning) to 100")
		}
		value = strconv.Itoa(percent)
	}
	return p.Set(class, value)
}

// Describe returns the class's value for messages; "": none.
func (p Parameter) Describe(class Class) string {
	value := p.Value(class)
	switch n, err := strconv.Atoi(value); {
	case p.Form == FormSize && err == nil:
		return (Bytes(n) * KiB).String()
	case p.Form == FormRatio && value != "":
		return value + " %"
	}
	return value
}

// Options are lvcreate's options for a class, without its layout and group.
func (class Class) Options() (options []string) {
	for _, p := range Parameters {
		value := p.Value(class)
		if p.Option == "" || value == "" {
			continue
		}
		if p.Form == FormSize {
			value += "k"
		}
		options = append(options, p.Option, value)
	}
	return options
}

// withDefault sets the class's default for a value that it lacks, and refuses what the layout does not allow.
func (p Parameter) withDefault(class *Class) error {
	if p.field == nil {
		return nil
	}
	value := p.field.get(class)
	r, has := p.In(class.Layout)
	switch {
	case !has && value == "":
		return nil
	case !has && p.WhyNot != "":
		return Errorf(KindInvalid, "%s: remove %s (its value is %q)", p.WhyNot, p.Name, value)
	case !has:
		return Errorf(KindInvalid, "the layout %s does not use %s (given: %s): omit it", class.Layout, p.Name, p.Describe(*class))
	case value == "" && p.isNumber():
		p.field.set(class, strconv.Itoa(r.Default))
		return nil
	case value == "":
		p.field.set(class, p.Default)
		return nil
	case p.Form == FormChoice && !slices.Contains(p.Choices, value):
		return Errorf(KindInvalid, "%s is %q; it can be %s", p.Name, value, strings.Join(p.Choices, ", "))
	case p.check != nil:
		return p.check(value)
	case p.isNumber():
		return p.checkRange(class.Layout, value, r)
	}
	return nil
}

func (p Parameter) checkRange(layout Layout, value string, r Range) error {
	n, err := strconv.Atoi(value)
	switch inside := err == nil && n >= r.Least && n <= r.Most; {
	case p.Form == FormSize && (!inside || n&(n-1) != 0):
		return Errorf(KindInvalid, "%s is %s KiB; use a power of two from %s to %s, at most the extent size of the volume group", p.Name, value, Bytes(r.Least)*KiB, Bytes(r.Most)*KiB)
	case !inside:
		return Errorf(KindInvalid, "%s is %s; the layout %s allows %d to %d", p.Name, value, layout, r.Least, r.Most)
	}
	return nil
}

// field is a parameter's place in a Class. Its text is that of a tag; "" is the zero value.
type field interface {
	get(class *Class) string // a pointer, because a copy per value would be garbage
	set(class *Class, text string)
}

type textField[T ~string] func(*Class) *T

func (at textField[T]) get(class *Class) string       { return string(*at(class)) }
func (at textField[T]) set(class *Class, text string) { *at(class) = T(text) }

type countField func(*Class) *int

func (at countField) get(class *Class) string {
	if n := *at(class); n != 0 {
		return strconv.Itoa(n)
	}
	return ""
}

func (at countField) set(class *Class, text string) { *at(class), _ = strconv.Atoi(text) }

type kibField func(*Class) *Bytes

func (at kibField) get(class *Class) string {
	switch size := *at(class); {
	case size == 0:
		return ""
	case size%KiB != 0:
		return strconv.FormatFloat(float64(size)/float64(KiB), 'f', -1, 64) // no stripe has it
	default:
		return strconv.FormatInt(int64(size/KiB), 10)
	}
}

func (at kibField) set(class *Class, text string) {
	n, _ := strconv.Atoi(text)
	*at(class) = Bytes(n) * KiB
}
