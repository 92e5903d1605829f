package dm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// RaidStatus is the kernel's status of a RAID (Linux, Documentation/admin-guide/device-mapper/dm-raid.rst, "Status Output"):
// `raid1 2 AA 6144/6144 idle 0 0 -`.
type RaidStatus struct {
	Kind   string
	Legs   string // a letter each: A in sync, a not in sync, D failed, - missing
	Done   int64  // sectors of the legs that the action has processed
	Total  int64
	Action string // idle, frozen, resync, recover, check, repair, reshape
}

func ParseRAID(params string) (RaidStatus, error) {
	f := strings.Fields(params)
	if len(f) < 5 {
		return RaidStatus{}, fmt.Errorf("%q is not the status of a RAID", params)
	}
	s := RaidStatus{Kind: f[0], Legs: f[2], Action: f[4]}
	count, err := strconv.Atoi(f[1])
	if err != nil || count != len(s.Legs) || strings.Trim(s.Legs, "AaD-") != "" {
		return RaidStatus{}, fmt.Errorf("%q is not the status of a RAID: the legs %q of %q", params, s.Legs, f[1])
	}
	s.Done, s.Total, err = ratio(f[3])
	if err != nil {
		return RaidStatus{}, fmt.Errorf("%q is not the status of a RAID: %w", params, err)
	}
	return s, nil
}

// Damage is the effect of the failed legs.
func (s RaidStatus) Damage() lvm.Damage {
	gone := make([]bool, len(s.Legs))
	for i, leg := range s.Legs {
		gone[i] = leg == 'D' || leg == '-'
	}
	return lvm.RaidDamage(s.Kind, gone)
}

// Lags reports whether a leg may lack data that is on the others: the kernel copies it there, or is about to. It is false during a
// resync of legs that all take part, as after the creation of the array: then each write reaches all legs. The action alone does
// not show a rebuild: just after lvchange --refresh it can still be idle or frozen.
func (s RaidStatus) Lags() bool {
	resync := s.Action == "resync" && !strings.Contains(s.Legs, "A")
	return strings.Contains(s.Legs, "a") && !resync
}

// Rebuilding reports whether the kernel copies data to a leg. A resync is no rebuild: it makes legs equal that were never
// written, or after a crash.
func (s RaidStatus) Rebuilding() bool { return s.Action == "recover" && s.Done < s.Total }

func ParsePool(params string) (lvm.PoolStatus, error) {
	f := strings.Fields(params)
	if len(f) == 1 && (f[0] == "Fail" || f[0] == "Error") {
		return lvm.PoolStatus{Failed: true}, nil
	}
	if len(f) < 8 {
		return lvm.PoolStatus{}, fmt.Errorf("%q is not the status of a thin pool", params)
	}
	s := lvm.PoolStatus{Mode: f[4], NeedsCheck: f[7] == "needs_check", HeldMetadata: f[3] != "-"}
	var err, dataErr error
	if s.TransactionID, err = strconv.ParseUint(f[0], 10, 64); err != nil {
		return lvm.PoolStatus{}, fmt.Errorf("cannot parse %q as the status of a thin pool: %s must be a transaction id", params, f[0])
	}
	s.MetadataUsed, s.MetadataTotal, err = ratio(f[1])
	s.DataUsed, s.DataTotal, dataErr = ratio(f[2])
	if err != nil || dataErr != nil {
		return lvm.PoolStatus{}, fmt.Errorf("cannot parse %q as the status of a thin pool: %s and %s must be USED/TOTAL", params, f[1], f[2])
	}
	return s, nil
}

// ratio parses "done/total".
func ratio(text string) (done, total int64, err error) {
	before, after, ok := strings.Cut(text, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not a ratio", text)
	}
	done, err = strconv.ParseInt(before, 10, 64)
	if err == nil {
		total, err = strconv.ParseInt(after, 10, 64)
	}
	if err != nil || done < 0 || total < done {
		return 0, 0, fmt.Errorf("%q is not a ratio", text)
	}
	return done, total, nil
}
