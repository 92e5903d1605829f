package luks

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
)

var subject = NewVolume("vg/pvc-1", "AAAAAA-1", "/dev/dm-3")

const subjectNumber = 254<<8 | 3

func valid() Header {
	return Header{State: HeaderValid, UUID: subject.headerUUID, Sector: 4096, Copies: 2, Slots: []Slot{{Number: 0, Bound: true, Function: "pbkdf2"}}}
}

func open(size lvm.Bytes) Mapping {
	return Mapping{Exists: true, Live: true, Number: 254<<8 | 4, Size: size, UUID: mappingUUID(subject.headerUUID, subject.name),
		Table: Table{Target: "crypt", Device: "254:3", Offset: lvm.LUKSHeaderSize}}
}

func TestPlan(t *testing.T) {
	const size = lvm.GiB
	other := valid()
	other.UUID = "11111111-2222-8333-8444-555555555555"
	with := func(m Mapping, change func(*Mapping)) Mapping { change(&m); return m }
	formatted := progress{formatted: true}
	for name, test := range map[string]struct {
		o        Observation
		copied   bool
		moved    bool
		p        progress
		want     Step
		kind     lvm.Kind
		says     string
		oversize bool
	}{
		"blank":                              {want: StepWriteMark},
		"marked":                             {o: Observation{Mark: MarkFormatting}, want: StepFormat},
		"marked, format cut short":           {o: Observation{Mark: MarkFormatting, Header: Header{State: HeaderDamaged}}, want: StepFormat},
		"marked, no key slot":                {o: Observation{Mark: MarkFormatting, Header: Header{State: HeaderNoKeys}}, want: StepFormat},
		"marked, formatted by another":       {o: Observation{Mark: MarkFormatting, Header: valid()}, want: StepFormat},
		"marked, opened by another":          {o: Observation{Mark: MarkFormatting, Header: valid(), Mapping: open(0)}, want: StepRemoveMapping},
		"formatted":                          {o: Observation{Mark: MarkFormatting, Header: valid()}, p: formatted, want: StepOpen},
		"formatted, with another header":     {o: Observation{Mark: MarkFormatting, Header: other}, p: formatted, kind: lvm.KindInternal, says: "not as expected"},
		"formatted, open":                    {o: Observation{Mark: MarkFormatting, Header: valid(), Mapping: open(0)}, p: formatted, want: StepClearMapping},
		"formatted, open, cleared":           {o: Observation{Mark: MarkFormatting, Header: valid(), Mapping: open(0)}, p: progress{true, true}, want: StepRemoveMark},
		"closed":                             {o: Observation{Mark: MarkFormatted, Header: valid()}, want: StepOpen},
		"closed, without a mark":             {o: Observation{Header: valid()}, want: StepOpen},
		"without a table":                    {o: Observation{Header: valid(), Mapping: Mapping{Exists: true}}, want: StepRemoveMapping},
		"open":                               {o: Observation{Header: valid(), Mapping: open(size - lvm.LUKSHeaderSize)}, want: StepNothing},
		"open and small":                     {o: Observation{Header: valid(), Mapping: open(size - lvm.LUKSHeaderSize - 4*lvm.MiB)}, want: StepResize},
		"open and large":                     {o: Observation{Header: valid(), Mapping: open(size)}, kind: lvm.KindConflict, says: "more than"},
		"copy":                               {o: Observation{Header: other}, copied: true, want: StepSetUUID},
		"copy with its UUID":                 {o: Observation{Header: valid()}, copied: true, want: StepOpen},
		"copy of a blank volume":             {copied: true, want: StepWriteMark},
		"moved":                              {o: Observation{Header: other}, moved: true, want: StepSetUUID},
		"moved in a format":                  {o: Observation{Header: other, Other: true}, moved: true, want: StepTakeMark},
		"moved in a format cut short":        {o: Observation{Header: Header{State: HeaderDamaged}, Other: true}, moved: true, want: StepTakeMark},
		"moved, its format ended here":       {o: Observation{Header: valid(), Mark: MarkFormatted, Other: true}, moved: true, want: StepOpen},
		"moved in a format, and erased":      {o: Observation{Mark: MarkErased, Other: true}, moved: true, kind: lvm.KindConflict, says: "were destroyed"},
		"copied in a format":                 {o: Observation{Header: other, Other: true}, copied: true, want: StepSetUUID},
		"another's format mark":              {o: Observation{Header: other, Other: true}, kind: lvm.KindConflict, says: "another volume's"},
		"header of another":                  {o: Observation{Header: other}, kind: lvm.KindConflict, says: "another volume's"},
		"header lost":                        {o: Observation{Mark: MarkFormatted}, kind: lvm.KindConflict, says: "is missing"},
		"header lost while open":             {o: Observation{Mapping: open(size - lvm.LUKSHeaderSize)}, kind: lvm.KindConflict, says: "copy its data before its pods end"},
		"header damaged":                     {o: Observation{Header: Header{State: HeaderDamaged, Reason: "checksum"}}, kind: lvm.KindConflict, says: "damaged (checksum)"},
		"header foreign":                     {o: Observation{Header: Header{State: HeaderForeign, Reason: "it has tokens"}}, kind: lvm.KindConflict, says: "it has tokens"},
		"header foreign, of a copy":          {o: Observation{Header: Header{State: HeaderForeign, Reason: "it has tokens"}}, copied: true, kind: lvm.KindConflict, says: "it has tokens"},
		"slots erased by luksErase":          {o: Observation{Header: Header{State: HeaderNoKeys}}, kind: lvm.KindConflict, says: "no key slot"},
		"erased":                             {o: Observation{Mark: MarkErased}, kind: lvm.KindConflict, says: "were destroyed"},
		"erased in part":                     {o: Observation{Mark: MarkErased, Header: valid()}, kind: lvm.KindConflict, says: "were destroyed"},
		"held by another device":             {o: Observation{Header: valid(), Holders: []string{"admins"}}, kind: lvm.KindInUse, says: "admins"},
		"blank and held":                     {o: Observation{Holders: []string{"admins"}}, kind: lvm.KindInUse, says: "admins"},
		"mapping of another target":          {o: Observation{Header: valid(), Mapping: with(open(0), func(m *Mapping) { m.Table.Target = "linear" })}, kind: lvm.KindConflict, says: "is no LUKS2 mapping"},
		"mapping on another device":          {o: Observation{Header: valid(), Mapping: with(open(0), func(m *Mapping) { m.Table.Device = "254:9" })}, kind: lvm.KindConflict, says: "254:9"},
		"mapping at another place":           {o: Observation{Header: valid(), Mapping: with(open(0), func(m *Mapping) { m.Table.Offset = 0 })}, kind: lvm.KindConflict, says: "byte 0"},
		"mapping of another header":          {o: Observation{Header: valid(), Mapping: with(open(0), func(m *Mapping) { m.UUID = "CRYPT-LUKS2-1" })}, kind: lvm.KindConflict, says: "another header"},
		"suspended":                          {o: Observation{Header: valid(), Mapping: with(open(0), func(m *Mapping) { m.Suspended = true })}, kind: lvm.KindInUse, says: "dmsetup resume"},
		"marked, and the mapping is foreign": {o: Observation{Mark: MarkFormatting, Mapping: with(open(0), func(m *Mapping) { m.Table.Device = "254:9" })}, kind: lvm.KindConflict, says: "254:9"},
	} {
		t.Run(name, func(t *testing.T) {
			v := subject
			v.Copied, v.Moved = test.copied || test.moved, test.moved
			test.o.Number, test.o.Size, test.o.Logical = subjectNumber, size, 512
			got, err := plan(v, test.o, test.p)
			if test.says == "" && (err != nil || got != test.want) {
				t.Errorf("%v, %v, want %v", got, err, test.want)
			}
			if test.says != "" && (err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v, %v, want an error of kind %d that says %q", got, err, test.kind, test.says)
			}
		})
	}
	if _, err := plan(subject, Observation{Size: lvm.LUKSHeaderSize}, progress{}); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("a device without room for data: %v", err)
	}
}

// TestPlanNeverFormatsData: for every observation, a format begins only on a device without a header and without a mark of an
// earlier format, and luksFormat runs only under the format mark.
func TestPlanNeverFormatsData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Observation{
			Number: subjectNumber, Size: lvm.GiB, Logical: 512,
			Header: Header{State: HeaderState(rapid.IntRange(0, 4).Draw(t, "header")), Sector: 4096, UUID: rapid.SampledFrom([]string{"", subject.headerUUID, "other"}).Draw(t, "uuid")},
			Mark:   Mark(rapid.IntRange(0, 3).Draw(t, "mark")),
			Other:  rapid.Bool().Draw(t, "another's mark"),
		}
		if rapid.Bool().Draw(t, "mapped") {
			o.Mapping = open(lvm.GiB - lvm.LUKSHeaderSize)
			o.Mapping.Live = rapid.Bool().Draw(t, "live")
		}
		v := subject
		v.Copied, v.Moved = rapid.Bool().Draw(t, "copied"), rapid.Bool().Draw(t, "moved")
		step, err := plan(v, o, progress{rapid.Bool().Draw(t, "formatted"), rapid.Bool().Draw(t, "cleared")})
		if err != nil {
			return
		}
		if step == StepFormat && (o.Mark != MarkFormatting || o.Mapping.Live) || step == StepClearMapping && o.Mark != MarkFormatting ||
			step == StepTakeMark && (!v.Moved || !o.Other || o.Mark != MarkNone || o.Mapping.Live) ||
			step == StepWriteMark && (o.Header.State != HeaderNone || o.Mark != MarkNone || o.Mapping.Live) {
			t.Fatalf("%v for %+v", step, o)
		}
	})
}

func TestPlanRotation(t *testing.T) {
	for name, test := range map[string]struct {
		slots  map[int]opener
		add    bool
		remove []int
		kind   lvm.Kind
	}{
		"not begun":      {slots: map[int]opener{0: opensPrevious}, add: true, remove: []int{0}},
		"added":          {slots: map[int]opener{0: opensPrevious, 1: opensCurrent}, remove: []int{0}},
		"done":           {slots: map[int]opener{1: opensCurrent}},
		"an admin's too": {slots: map[int]opener{0: opensOther, 1: opensPrevious}, add: true, remove: []int{1}},
		"done, admin's":  {slots: map[int]opener{0: opensOther, 1: opensCurrent}},
		"neither":        {slots: map[int]opener{0: opensOther}, kind: lvm.KindConflict},
		"no slots":       {kind: lvm.KindConflict},
	} {
		add, remove, err := planRotation(subject, test.slots)
		if add != test.add || len(remove) != len(test.remove) || len(remove) == 1 && remove[0] != test.remove[0] || (err != nil) != (test.kind != 0) {
			t.Errorf("%s: %t, %v, %v", name, add, remove, err)
		}
	}
}
