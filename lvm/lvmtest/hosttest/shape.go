package hosttest

import (
	"fmt"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// Shape is a layout with several legs, and its expected extents.
type Shape struct {
	Class lvm.Class // without its group
	Legs  int       // disks that it is on
	Data  int       // disks with different data: a row is one extent on each
}

// Shapes has one or more of each layout with several legs.
var Shapes = []Shape{
	{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 2, StripeSize: 64 * lvm.KiB}, 2, 2},
	{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 3, StripeSize: 128 * lvm.KiB}, 3, 3},
	{lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 1}, 2, 1},
	{lvm.Class{Layout: lvm.LayoutRAID5, Stripes: 2, StripeSize: 64 * lvm.KiB}, 3, 2},
	{lvm.Class{Layout: lvm.LayoutRAID6, Stripes: 3, StripeSize: 64 * lvm.KiB}, 5, 3},
	{lvm.Class{Layout: lvm.LayoutRAID10, Stripes: 2, StripeSize: 64 * lvm.KiB, Mirrors: 1}, 4, 2},
}

func (s Shape) String() string { return fmt.Sprintf("%s of %d disks", s.Class.Layout, s.Legs) }

// Row is the smallest expansion of a volume with this shape.
func (s Shape) Row() lvm.Bytes { return lvm.Bytes(s.Data) * lvmtest.ExtentSize }
