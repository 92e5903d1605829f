package lvm

import "fmt"

// PoolStatus is the kernel's status of a thin pool (Linux, Documentation/admin-guide/device-mapper/thin-provisioning.rst,
// "Status"): `1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024`.
type PoolStatus struct {
	Failed                      bool   // all of its I/O fails
	Mode                        string // rw, ro, out_of_data_space
	NeedsCheck                  bool
	MetadataUsed, MetadataTotal int64 // blocks of 4 KiB
	DataUsed, DataTotal         int64 // chunks

	HeldMetadata bool // it has a metadata snapshot

	TransactionID uint64 // 0 if Failed: the kernel does not report it then
}

// IsFull reports whether writes to new blocks fail.
func (s PoolStatus) IsFull() bool {
	return s.Mode == "out_of_data_space" || s.DataUsed >= s.DataTotal || s.MetadataUsed >= s.MetadataTotal
}

// CommitsNothing reports whether the pool does not write its metadata.
func (s PoolStatus) CommitsNothing() bool { return s.Failed || s.NeedsCheck || s.Mode == "ro" }

// IsFailed reports whether the pool refuses writes for another reason than full metadata, for which the kernel shows the mode ro, too.
func (s PoolStatus) IsFailed() bool {
	full := s.MetadataTotal > 0 && s.MetadataUsed >= s.MetadataTotal
	return s.CommitsNothing() && (s.Failed || s.NeedsCheck || !full)
}

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

// Percent formats a part of a whole.
func Percent(part, whole int64) string {
	if whole <= 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// IsAbove reports whether at least so many percent are in use.
func IsAbove(used, total int64, percent int) bool {
	return total > 0 && used >= total/100*int64(percent)+total%100*int64(percent)/100
}

// IsMismatched reports whether LVM's metadata is of another state of the pool. While it has messages for the pool, it is one transaction
// ahead until the pool has them; whoever uses the pool next sends them.
func (s PoolStatus) IsMismatched(pool ThinPool) bool {
	ahead := len(pool.Messages) > 0 && pool.TransactionID == s.TransactionID+1
	return !s.Failed && pool.TransactionID != s.TransactionID && !ahead
}
