package trim

import (
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Never is the interval of a claim that opts out of its class's interval.
const Never = "never"

// Bounds of an interval: a claim's owner must not keep the node's disks busy.
const (
	shortest = time.Hour
	longest  = 366 * 24 * time.Hour
)

// ParseInterval parses an annotation; 0: do not trim.
func ParseInterval(text string) (time.Duration, error) {
	if text == "" || text == Never {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortest || d > longest {
		return 0, fmt.Errorf("the trim interval is %.64q; set it to %q, or to a duration of %s to %s such as 24h", text, Never, shortest, longest)
	}
	return d, nil
}

// due selects the file system whose trim is overdue longest. One that this process has not trimmed is due as if it had been trimmed
// when it was first seen, but for an interval of at most firstWithin.
func due(volumes []volume, now time.Time) (volume, bool) {
	var first volume
	var most time.Duration = -1
	for _, v := range volumes {
		if late := now.Sub(v.since.Add(v.interval)); late >= 0 && late > most {
			first, most = v, late
		}
	}
	return first, most >= 0
}

// volume is a file system that is to be trimmed.
type volume struct {
	FileSystem
	interval time.Duration
	since    time.Time
}

// FileSystem is a mounted file system of a volume.
type FileSystem struct {
	ID     lvm.ID
	Volume string // name of the PersistentVolume
}
