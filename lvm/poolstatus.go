package lvm

import "fmt"

// PoolStatus is what the kernel tells of a thin pool (Linux, Documentation/admin-guide/device-mapper/
// thin-provisioning.rst, "Status"): `1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024`.
type PoolStatus struct {
	Failed                      bool   // it answers with errors only
	Mode                        string // rw, ro, out_of_data_space
	NeedsCheck                  bool
	MetadataUsed, MetadataTotal int64 // blocks of 4 KiB
	DataUsed, DataTotal         int64 // chunks
}

// IsFull tells whether writes that need a new block fail.
func (s PoolStatus) IsFull() bool {
	return s.Mode == "out_of_data_space" || s.DataUsed >= s.DataTotal || s.MetadataUsed >= s.MetadataTotal
}

// IsFailed tells whether the pool takes no writes for another reason than room.
func (s PoolStatus) IsFailed() bool { return s.Failed || s.NeedsCheck || s.Mode == "ro" }

func (s PoolStatus) FailureReason() string {
	switch {
	case s.Failed:
		return "it has failed"
	case s.NeedsCheck:
		return "its metadata must be checked"
	default:
		return "it is read-only"
	}
}

// Percent words a part of a whole.
func Percent(part, whole int64) string {
	if whole <= 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// IsAbove tells whether so many percent of something are in use.
func IsAbove(used, total int64, percent int) bool {
	return total > 0 && used >= total/100*int64(percent)+total%100*int64(percent)/100
}
