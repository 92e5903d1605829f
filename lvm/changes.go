package lvm

import "math/bits"

// ChangeUnit is the unit of Changes: the least chunk of a thin pool.
const ChangeUnit = 64 * KiB

// Changes says which parts of a device may differ from an earlier state of it. It takes 2 MiB for each TiB of the device.
type Changes struct {
	units int64
	marks []uint64
}

// NewChanges returns the changes of a device of this size: none.
func NewChanges(size Bytes) *Changes {
	units := int64((size + ChangeUnit - 1) / ChangeUnit)
	return &Changes{units: units, marks: make([]uint64, (units+63)/64)}
}

// Add marks a part as changed. What is beyond the device does not count.
func (c *Changes) Add(from, length Bytes) {
	if length <= 0 || from < 0 {
		return
	}
	last := c.units - 1
	if end := from + length - 1; end >= from && int64(end/ChangeUnit) < last {
		last = int64(end / ChangeUnit)
	}
	for i := int64(from / ChangeUnit); i <= last; i++ {
		c.marks[i/64] |= 1 << (i % 64)
	}
}

// Next returns the first changed unit at or after this one; false: there is none.
func (c *Changes) Next(unit int64) (int64, bool) {
	for unit = max(unit, 0); unit < c.units; unit = (unit/64 + 1) * 64 {
		if word := c.marks[unit/64] >> (unit % 64); word != 0 {
			return unit + int64(bits.TrailingZeros64(word)), true
		}
	}
	return c.units, false
}

// Memory returns how much memory the changes take.
func (c *Changes) Memory() Bytes { return Bytes(len(c.marks)) * 8 }

// Size returns how much is changed, in whole units.
func (c *Changes) Size() (size Bytes) {
	for _, word := range c.marks {
		size += Bytes(bits.OnesCount64(word)) * ChangeUnit
	}
	return size
}
