package lvm

import (
	"fmt"
	"strconv"
	"strings"
)

// raidStatus is what the kernel tells of a RAID (Linux, Documentation/admin-guide/device-mapper/dm-raid.rst, "Status
// Output"): `raid1 2 AA 6144/6144 idle 0 0 -`.
type raidStatus struct {
	kind   string
	legs   string // one letter each: A in sync, a not in sync, D failed, - not there
	done   int64  // of the legs' sectors, by the action under way
	total  int64
	action string // idle, frozen, resync, recover, check, repair, reshape
}

func parseRAID(params string) (raidStatus, error) {
	f := strings.Fields(params)
	if len(f) < 5 {
		return raidStatus{}, fmt.Errorf("%q is no status of a RAID", params)
	}
	s := raidStatus{kind: f[0], legs: f[2], action: f[4]}
	count, err := strconv.Atoi(f[1])
	if err != nil || count != len(s.legs) || strings.Trim(s.legs, "AaD-") != "" {
		return raidStatus{}, fmt.Errorf("%q is no status of a RAID: the legs %q of %q", params, s.legs, f[1])
	}
	s.done, s.total, err = ratio(f[3])
	if err != nil {
		return raidStatus{}, fmt.Errorf("%q is no status of a RAID: %w", params, err)
	}
	return s, nil
}

// damage tells what the failed legs mean.
func (s raidStatus) damage() damage {
	gone := make([]bool, len(s.legs))
	for i, leg := range s.legs {
		gone[i] = leg == 'D' || leg == '-'
	}
	return raidDamage(s.kind, gone)
}

// rebuilding tells whether a leg is being filled from the others. A resync is not that: it makes legs equal where
// nothing was written yet, or after a crash.
func (s raidStatus) rebuilding() bool { return s.action == "recover" && s.done < s.total }

func parsePool(params string) (poolStatus, error) {
	f := strings.Fields(params)
	if len(f) == 1 && (f[0] == "Fail" || f[0] == "Error") {
		return poolStatus{failed: true}, nil
	}
	if len(f) < 8 {
		return poolStatus{}, fmt.Errorf("%q is no status of a thin pool", params)
	}
	s := poolStatus{mode: f[4], needsCheck: f[7] == "needs_check"}
	var err, dataErr error
	s.metadataUsed, s.metadataTotal, err = ratio(f[1])
	s.dataUsed, s.dataTotal, dataErr = ratio(f[2])
	if err != nil || dataErr != nil {
		return poolStatus{}, fmt.Errorf("%q is no status of a thin pool: %s and %s", params, f[1], f[2])
	}
	return s, nil
}

// ratio reads "done/total".
func ratio(text string) (done, total int64, err error) {
	before, after, ok := strings.Cut(text, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no part of a whole", text)
	}
	done, err = strconv.ParseInt(before, 10, 64)
	if err == nil {
		total, err = strconv.ParseInt(after, 10, 64)
	}
	if err != nil || done < 0 || total < done {
		return 0, 0, fmt.Errorf("%q is no part of a whole", text)
	}
	return done, total, nil
}
