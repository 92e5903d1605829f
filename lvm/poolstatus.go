package lvm

import "fmt"

// poolStatus is what the kernel tells of a thin pool (Linux, Documentation/admin-guide/device-mapper/
// thin-provisioning.rst, "Status"): `1 31/2048 170/512 - rw discard_passdown error_if_no_space - 1024`.
type poolStatus struct {
	failed                      bool   // it answers with errors only
	mode                        string // rw, ro, out_of_data_space
	needsCheck                  bool
	metadataUsed, metadataTotal int64 // blocks of 4 KiB
	dataUsed, dataTotal         int64 // chunks
}

// full tells whether writes that need a new block fail.
func (s poolStatus) full() bool {
	return s.mode == "out_of_data_space" || s.dataUsed >= s.dataTotal || s.metadataUsed >= s.metadataTotal
}

// broken tells whether the pool takes no writes for another reason than room.
func (s poolStatus) broken() bool { return s.failed || s.needsCheck || s.mode == "ro" }

func (s poolStatus) words() string {
	switch {
	case s.failed:
		return "it has failed"
	case s.needsCheck:
		return "its metadata must be checked"
	default:
		return "it is read-only"
	}
}

// percent words a part of a whole.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// reached tells whether so many percent of something are in use.
func reached(used, total int64, percent int) bool {
	return total > 0 && used >= total/100*int64(percent)+total%100*int64(percent)/100
}
