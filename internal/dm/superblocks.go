package dm

import "github.com/nodelvm/nodelvm/lvm"

// Span is a part of a device.
type Span struct{ At, Length lvm.Bytes }

// SuperblockSpans returns the places where libblkid searches a device of this size for superblocks, which include file systems' copies
// of them, and btrfs's copy at 64 MiB. Each is within the device.
func SuperblockSpans(size lvm.Bytes) []Span {
	var spans []Span
	for _, s := range []Span{
		{0, 516 * lvm.KiB}, {lvm.MiB, 4 * lvm.KiB}, {2 * lvm.MiB, 4 * lvm.KiB}, {4 * lvm.MiB, 4 * lvm.KiB}, {64 * lvm.MiB, 4 * lvm.KiB},
		{size - 1544*lvm.KiB, 4 * lvm.KiB}, {size - lvm.MiB, 4 * lvm.KiB}, {size - 512*lvm.KiB, 512 * lvm.KiB},
	} {
		from, until := max(s.At, 0), min(s.At+s.Length, size)
		if from < until {
			spans = append(spans, Span{from, until - from})
		}
	}
	return spans
}
