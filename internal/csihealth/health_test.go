package csihealth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var (
	one, two = id("v-1"), id("v-2")
	group    = lvm.VGUUID("aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg")
)

func id(lv string) lvm.ID {
	return lvm.ID{VG: "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg", LV: lv}
}

func of(kind lvm.ConditionType, id lvm.ID, text string) lvm.Condition {
	return lvm.Condition{Type: kind, VG: group, Volume: lvm.Volume{ID: id, UUID: "uuid of " + id.LV}, Text: text}
}

func ofGroup(kind lvm.ConditionType, text string) lvm.Condition {
	return lvm.Condition{Type: kind, VG: group, Text: text}
}

// allTypes reads the types of conditions from the source of package lvm.
func allTypes(t *testing.T) (all []lvm.ConditionType) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../lvm/condition.go", nil, 0)
	check.Must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if v, is := n.(*ast.ValueSpec); is {
			if kind, named := v.Type.(*ast.Ident); named && kind.Name == "ConditionType" {
				value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				check.Must(t, err)
				all = append(all, lvm.ConditionType(value))
			}
		}
		return true
	})
	if len(all) < 20 {
		t.Fatalf("only %d conditions: %v", len(all), all)
	}
	return all
}

// TestTerms: each condition has its status in CSI, as docs/reference/events.md says, or is named as one that has none.
func TestTerms(t *testing.T) {
	want := map[lvm.ConditionType]string{
		"VolumeDegraded": "DEGRADED", "VolumeRebuilding": "DEGRADED", "ThinPoolFull": "DEGRADED", "ThinPoolFailed": "DEGRADED",
		"FileSystemFull": "DEGRADED", "FileSystemReadOnly": "DEGRADED", "EncryptionHeaderDamaged": "DEGRADED",
		"VolumeDataMissing": "INACCESSIBLE", "VolumeOnRemovedDisk": "INACCESSIBLE", "VolumeSuspended": "INACCESSIBLE",
		"PhysicalVolumeMissing": "STORAGE_DEGRADED", "DiskUnresponsive": "STORAGE_DEGRADED", "VolumeGroupUnusable": "STORAGE_DEGRADED",
		"ThinPoolNearlyFull": "STORAGE_DEGRADED", "ThinPoolTransactionMismatch": "STORAGE_DEGRADED",
		"FileSystemNearlyFull": "", "FileSystemInodesNearlyUsed": "", "SignatureFound": "", "VolumeGroupMixedBlockSizes": "",
		"VolumeGroupSetupFailed": "", "PhysicalVolumeNotAccepted": "", "IOLimitsNotSet": "",
	}
	entries := 0
	for _, kind := range allTypes(t) {
		volume, storage := Volume(one, []lvm.Condition{of(kind, one, "text")}), Storage([]lvm.Condition{ofGroup(kind, "text")})
		var got []string
		for _, e := range volume.GetHealthStatuses() {
			got = append(got, e.GetStatus().String())
		}
		for _, e := range storage {
			got = append(got, e.GetStatus().String())
		}
		if status, listed := want[kind]; !listed || strings.Join(got, " ") != status {
			t.Errorf("%s: %q, want %q", kind, got, status)
		}
		if _, listed := terms[kind]; !listed {
			t.Errorf("%s has no term", kind)
		}
		entries += len(volume.GetHealthStatuses()) + len(storage)
	}
	if entries > maxEntries {
		t.Errorf("%d conditions have a status: one volume could have more than Kubernetes allows", entries)
	}
}

// TestVolume: a volume has its own conditions, each once, and none of its group.
func TestVolume(t *testing.T) {
	found := []lvm.Condition{
		of(lvm.ConditionVolumeDegraded, one, "a leg failed"), of(lvm.ConditionVolumeDegraded, one, "again"), of(lvm.ConditionVolumeRebuilding, one, "25 %"),
		of(lvm.ConditionVolumeDataMissing, two, "gone"), ofGroup(lvm.ConditionPhysicalVolumeMissing, "a disk"), of(lvm.ConditionSignatureFound, one, "LVM2_member"),
	}
	for id, want := range map[lvm.ID]string{
		one: "DEGRADED VolumeDegraded a leg failed; DEGRADED VolumeRebuilding 25 %", two: "INACCESSIBLE VolumeDataMissing gone", id("v-3"): "",
	} {
		health := Volume(id, found)
		var got []string
		for _, e := range health.GetHealthStatuses() {
			got = append(got, fmt.Sprintf("%s %s %s", e.GetStatus(), e.GetReason(), e.GetMessage()))
		}
		if strings.Join(got, "; ") != want || health.GetVolumeId() != id.String() {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if ids := Unhealthy(append(found, of(lvm.ConditionSignatureFound, id("v-0"), ""))); len(ids) != 2 || ids[0] != one || ids[1] != two {
		t.Errorf("unhealthy: %v", ids)
	}
}

// TestStorage: conditions of one type share an entry, because a reason must be unique; those of volumes are not the storage's.
func TestStorage(t *testing.T) {
	got := Storage([]lvm.Condition{
		ofGroup(lvm.ConditionPhysicalVolumeMissing, "group a"), of(lvm.ConditionVolumeDataMissing, one, "x"), ofGroup(lvm.ConditionThinPoolNearlyFull, "pool"),
		ofGroup(lvm.ConditionPhysicalVolumeMissing, "group b"),
	})
	if len(got) != 2 || got[0].GetReason() != "PhysicalVolumeMissing" || got[0].GetMessage() != "group a; group b" || got[1].GetReason() != "ThinPoolNearlyFull" ||
		got[0].GetStatus() != csi.StorageHealthErrorType_STORAGE_DEGRADED {
		t.Errorf("%v", got)
	}
}

// TestLongTexts: no text is longer than Kubernetes allows, or invalid UTF-8: the API server would refuse the pod's whole status.
func TestLongTexts(t *testing.T) {
	for _, text := range []string{strings.Repeat("a", 1024), strings.Repeat("a", 1025), strings.Repeat("ä", 700), "a" + strings.Repeat("ä", 700), strings.Repeat("€", 342), "\xff" + strings.Repeat("a", 2000), ""} {
		volume := Volume(one, []lvm.Condition{of(lvm.ConditionVolumeSuspended, one, text)}).GetHealthStatuses()[0].GetMessage()
		storage := Storage([]lvm.Condition{ofGroup(lvm.ConditionDiskUnresponsive, text), ofGroup(lvm.ConditionDiskUnresponsive, text)})[0].GetMessage()
		for _, got := range []string{volume, storage} {
			if len(got) > 1024 || !utf8.ValidString(got) || len(text) <= 1024 && utf8.ValidString(text) && !strings.HasPrefix(got, text[:min(len(text), 1000)]) {
				t.Errorf("%d bytes of %q...: %q", len(got), text[:min(len(text), 9)], got)
			}
		}
	}
}

// TestRecent: calls share a reading for ten seconds, but no error and nothing that a failed reading found; a caller does not wait longer
// than it wants.
func TestRecent(t *testing.T) {
	reads, failure, unlisted := 0, error(nil), error(nil)
	r := NewRecent(func(context.Context) ([]lvm.Condition, error) {
		reads++
		return []lvm.Condition{of(lvm.ConditionVolumeDegraded, one, "")}, failure
	}, func(context.Context) ([]lvm.Volume, error) { return []lvm.Volume{{ID: two}}, unlisted })
	now := time.Unix(1e9, 0)
	r.now = func() time.Time { return now }
	expect := func(what string, want int) {
		t.Helper()
		if found, err := r.Found(t.Context()); err != nil || len(found.Conditions) != 1 || !found.Volumes[two] || found.Volumes[one] || reads != want {
			t.Errorf("%s: %v, %v, %d readings", what, found, err, reads)
		}
	}
	expect("the first", 1)
	now = now.Add(recently - time.Nanosecond)
	expect("just in time", 1)
	now = now.Add(time.Nanosecond)
	failure = errors.New("no answer")
	for range 2 {
		if found, err := r.Found(t.Context()); !errors.Is(err, cmp.Or(failure, unlisted)) || found.Conditions != nil || found.Volumes != nil {
			t.Errorf("after an error: %v, %v", found, err)
		}
		failure, unlisted = nil, errors.New("no list")
	}
	unlisted = nil
	expect("after an error", 4)

	interrupted, interrupt := context.WithCancel(t.Context())
	partly := NewRecent(func(context.Context) ([]lvm.Condition, error) { interrupt(); return nil, nil }, func(context.Context) ([]lvm.Volume, error) { return nil, nil })
	if _, err := partly.Found(interrupted); lvm.KindOf(err) != lvm.KindBusy || !partly.until.IsZero() {
		t.Errorf("a reading that was interrupted: %v", err)
	}

	<-r.turn
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Found(ctx); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("while another one reads: %v", err)
	}
}
