package lvm

import (
	"fmt"
	"strings"
)

// Bytes is a size in bytes.
type Bytes int64

// units are the units of sizes, the largest first.
var units = []struct {
	size Bytes
	name string
}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}}

// Share formats a part of a whole in one unit: "3.1 of 3.3 GiB". Both have at most one decimal, rounded down.
func Share(part, whole Bytes) string {
	for _, unit := range units {
		if whole < unit.size {
			continue
		}
		in := func(b Bytes) string {
			return strings.TrimSuffix(fmt.Sprintf("%d.%d", b/unit.size, b%unit.size*10/unit.size), ".0")
		}
		if part > 0 && in(part) == "0" {
			break
		}
		return in(part) + " of " + in(whole) + " " + unit.name
	}
	return part.String() + " of " + whole.String()
}

// String formats a size for operators: exact, in the largest unit in which it is a whole number of at most four digits; else
// with one decimal, rounded down.
func (b Bytes) String() string {
	for _, unit := range units {
		if b%unit.size == 0 && b != 0 && b/unit.size < 10000 {
			return fmt.Sprintf("%d %s", b/unit.size, unit.name)
		}
	}
	for _, unit := range units {
		if b >= unit.size {
			return fmt.Sprintf("%d.%d %s", b/unit.size, b%unit.size*10/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}
