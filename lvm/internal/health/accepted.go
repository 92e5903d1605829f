package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// notAcceptedAfter is longer than another driver's raw block volume is on the node before the kubelet shows that it is a pod's.
const notAcceptedAfter = 2 * time.Minute

// notAccepted returns one condition for the physical volumes that the driver ignores.
func notAccepted(s lvm.State, now time.Time) []lvm.Condition {
	var which, devices []string
	for _, u := range s.Unaccepted {
		if now.Sub(u.Since) < notAcceptedAfter {
			continue
		}
		which = append(which, fmt.Sprintf("%s (physical volume %s, %s): %s", u.Device, u.PV, u.Identity, u.Reason))
		devices = append(devices, u.Device)
	}
	if len(which) == 0 {
		return nil
	}
	return []lvm.Condition{{Type: lvm.ConditionPhysicalVolumeNotAccepted, Cause: strings.Join(devices, " "), Text: fmt.Sprintf(
		"the driver ignores %s. If it is a disk of this node for the driver's volumes, run in the driver's container on this node: nodelvm disks accept %s", strings.Join(which, "; "), devices[0])}}
}
