package iolimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// number formats a device's number (dev_t) as the kernel does: "253:4".
func number(device uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
}

// line returns what sets the limits of a device in io.max. It names each of the four, so that nothing remains of an earlier limit.
func line(device uint64, r lvm.Rates) string {
	word := func(n int64) string {
		if n <= 0 {
			return "max"
		}
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s rbps=%s wbps=%s riops=%s wiops=%s", number(device),
		word(int64(r.ReadBandwidth)), word(int64(r.WriteBandwidth)), word(r.ReadIOPS), word(r.WriteIOPS))
}

// parseMax parses io.max. The kernel lists only devices with a limit.
func parseMax(text string) map[uint64]lvm.Rates {
	all := map[uint64]lvm.Rates{}
	for l := range strings.Lines(text) {
		words := strings.Fields(l)
		if len(words) == 0 {
			continue
		}
		device, ok := parseNumber(words[0])
		if !ok {
			continue
		}
		var r lvm.Rates
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			n := limitOf(value)
			switch key {
			case "rbps":
				r.ReadBandwidth = lvm.Bytes(n)
			case "wbps":
				r.WriteBandwidth = lvm.Bytes(n)
			case "riops":
				r.ReadIOPS = n
			case "wiops":
				r.WriteIOPS = n
			}
		}
		all[device] = r
	}
	return all
}

// limitOf parses a limit; 0: "max".
func limitOf(value string) int64 {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0
	}
	return int64(min(n, math.MaxInt64))
}

func parseNumber(text string) (device uint64, ok bool) {
	first, second, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(first, 10, 32)
	if err != nil {
		return 0, false
	}
	minor, err := strconv.ParseUint(second, 10, 32)
	return unix.Mkdev(uint32(major), uint32(minor)), err == nil
}
