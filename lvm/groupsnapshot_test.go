package lvm

import (
	"slices"
	"testing"
)

// TestGroupSnapshotID: the ID depends on the name and the volumes, not on their order.
func TestGroupSnapshotID(t *testing.T) {
	a, b := VGUUID("aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa"), VGUUID("bbbbbb-bbbb-bbbb-bbbb-bbbb-bbbb-bbbbbb")
	spec := GroupSnapshotSpec{Name: "groupsnapshot-1", Sources: []ID{{b, "pvc-1"}, {a, "pvc-3"}, {a, "pvc-2"}}}
	want := ID{a, GroupSnapshotName("groupsnapshot-1")}
	for range spec.Sources {
		if got := spec.ID(); got != want {
			t.Errorf("the ID of %+v is %s, want %s", spec.Sources, got, want)
		}
		spec.Sources = slices.Concat(spec.Sources[1:], spec.Sources[:1])
	}
}
