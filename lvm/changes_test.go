package lvm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestChanges compares with a plain set.
func TestChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		size := Bytes(1 + random.Int64N(int64(40*MiB)))
		c, want := NewChanges(size), map[int64]bool{}
		units := int64((size + ChangeUnit - 1) / ChangeUnit)
		for range random.IntN(6) {
			from, length := Bytes(random.Int64N(int64(50*MiB))), Bytes(random.Int64N(int64(2*MiB)))
			c.Add(from, length)
			for i := int64(from / ChangeUnit); length > 0 && i <= int64((from+length-1)/ChangeUnit) && i < units; i++ {
				want[i] = true
			}
		}
		if c.Size() != Bytes(len(want))*ChangeUnit {
			t.Fatalf("%d bytes, want %d units", c.Size(), len(want))
		}
		at, seen := int64(-3), 0
		for {
			next, more := c.Next(at)
			if !more {
				break
			}
			if !want[next] {
				t.Fatalf("unit %d is not changed", next)
			}
			at, seen = next+1, seen+1
		}
		if seen != len(want) {
			t.Fatalf("found %d of %d", seen, len(want))
		}
	}
}

// TestChangesBounds: no range reaches beyond the device.
func TestChangesBounds(t *testing.T) {
	c := NewChanges(MiB + 1)
	c.Add(-1, MiB)
	c.Add(0, -1)
	c.Add(2*MiB, MiB)
	c.Add(math.MaxInt64-1, math.MaxInt64)
	if c.Size() != 0 {
		t.Errorf("%d bytes", c.Size())
	}
	c.Add(MiB, math.MaxInt64-MiB)
	if c.Size() != ChangeUnit {
		t.Errorf("%d bytes at the end", c.Size())
	}
	if _, more := c.Next(math.MaxInt64); more {
		t.Error("there is something behind the end")
	}
}
