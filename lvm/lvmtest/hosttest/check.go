package hosttest

import (
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// Must fails the test at once if there is an error.
var Must = check.Must

// WantKind fails the test unless an error is of this kind.
func WantKind(t testing.TB, what string, err error, kind lvm.Kind) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want kind %d", what, kind)
	} else if lvm.KindOf(err) != kind {
		t.Errorf("%s: kind %d, want %d: %v", what, lvm.KindOf(err), kind, err)
	}
}

// Refused returns a function that fails the test unless the error of a request is of this kind: Refused(t, "create", kind)(d.Create(...)).
func Refused(t testing.TB, what string, kind lvm.Kind) func(answer any, err error) {
	t.Helper()
	return func(_ any, err error) {
		t.Helper()
		WantKind(t, what, err, kind)
	}
}

// FindLV finds a logical volume of a group, hidden ones included, or fails the test.
func FindLV(t testing.TB, g lvm.Group, name string) lvm.LV {
	t.Helper()
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
	if i < 0 {
		t.Fatalf("group %s has no %s", g.Name, name)
	}
	return g.LVs[i]
}

// CheckLegs checks that no two legs of a volume share a disk.
func (b Fixture) CheckLegs(t *testing.T, v lvm.Volume, want int) {
	t.Helper()
	g := b.ReadGroup(t)
	owner, legs := map[string]int{}, 0
	for _, s := range FindLV(t, g, v.ID.LV).Segments {
		legs = len(s.Areas)
		for i := range s.Areas {
			for _, pv := range disksOf(t, g, s, i) {
				if other, taken := owner[pv]; taken && other != i {
					t.Errorf("legs %d and %d of %s are on one disk", other, i, v.ID.LV)
				}
				owner[pv] = i
			}
		}
	}
	if legs != want || len(owner) < want {
		t.Errorf("%s has %d legs on %d disks, want %d", v.ID.LV, legs, len(owner), want)
	}
}

// disksOf lists the disks that a leg of a segment is on, with its metadata.
func disksOf(t *testing.T, g lvm.Group, s lvm.Segment, leg int) []string {
	t.Helper()
	areas := []lvm.Area{s.Areas[leg]}
	if len(s.Metadata) > 0 {
		areas = append(areas, s.Metadata[leg])
	}
	var pvs []string
	for _, a := range areas {
		if a.PV != "" {
			pvs = append(pvs, a.PV)
			continue
		}
		for _, inner := range FindLV(t, g, a.LV).Segments {
			for i := range inner.Areas {
				pvs = append(pvs, disksOf(t, g, inner, i)...)
			}
		}
	}
	return pvs
}

// HasCondition reports whether there is a condition of this type of the volume with this UUID; "": of no volume.
func HasCondition(findings []lvm.Condition, kind lvm.ConditionType, uuid string) bool {
	return slices.ContainsFunc(findings, func(f lvm.Condition) bool { return f.Type == kind && f.Volume.UUID == uuid })
}
