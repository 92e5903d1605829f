package iolimit

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Statistics are what the kernel has counted of a device since the device exists (Documentation/admin-guide/iostats.rst).
type Statistics struct {
	Reads, Writes         int64 // completed requests
	ReadBytes, WriteBytes lvm.Bytes
	ReadTime, WriteTime   time.Duration // of all requests together, without the wait for a limit
}

// ReadStatistics returns those of each block device of the node, by its number. It reads one file.
func ReadStatistics() (map[uint64]Statistics, error) {
	text, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return nil, err
	}
	return parseStatistics(string(text)), nil
}

const sector = 512 // the unit of the kernel's counts, whatever the disk's is

func parseStatistics(text string) map[uint64]Statistics {
	all := map[uint64]Statistics{}
	for l := range strings.Lines(text) {
		words := strings.Fields(l) // major, minor, name; reads, merged, sectors, ms; writes, merged, sectors, ms; ...
		const needed = 11
		if len(words) < needed {
			continue
		}
		var n [needed]int64
		bad := false
		for i := range n {
			if i == 2 {
				continue
			}
			var err error
			if n[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
				bad = true
				break
			}
		}
		if !bad {
			all[unix.Mkdev(uint32(n[0]), uint32(n[1]))] = Statistics{
				Reads: n[3], ReadBytes: lvm.Bytes(n[5] * sector), ReadTime: time.Duration(n[6]) * time.Millisecond,
				Writes: n[7], WriteBytes: lvm.Bytes(n[9] * sector), WriteTime: time.Duration(n[10]) * time.Millisecond,
			}
		}
	}
	return all
}
