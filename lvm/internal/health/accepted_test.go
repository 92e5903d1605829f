package health

import (
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestNotAccepted: one condition names the ignored devices with the command; another driver's volume that is just being attached is none.
func TestNotAccepted(t *testing.T) {
	now := time.Unix(1e9, 0)
	old := func(device string) lvm.UnacceptedPV {
		return lvm.UnacceptedPV{Device: device, PV: "uuid", Identity: "WWID naa.1", Reason: "it may be foreign", Since: now.Add(-notAcceptedAfter)}
	}
	fresh := old("/dev/new")
	fresh.Since = now.Add(-time.Second)
	if found := notAccepted(lvm.State{Unaccepted: []lvm.UnacceptedPV{fresh}}, now); found != nil {
		t.Errorf("too early: %+v", found)
	}
	found := notAccepted(lvm.State{Unaccepted: []lvm.UnacceptedPV{old("/dev/sda"), fresh, old("/dev/sdb")}}, now)
	if len(found) != 1 || found[0].Type != lvm.ConditionPhysicalVolumeNotAccepted || found[0].Cause != "/dev/sda /dev/sdb" {
		t.Fatalf("%+v", found)
	}
	for _, words := range []string{"/dev/sda (physical volume uuid, WWID naa.1): it may be foreign; /dev/sdb", "nodelvm disks accept /dev/sda"} {
		if !strings.Contains(found[0].Text, words) || strings.Contains(found[0].Text, "/dev/new") {
			t.Errorf("%q lacks %q", found[0].Text, words)
		}
	}
}
