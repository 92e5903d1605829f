// Package alloc decides where volumes go. Pure functions of a lvm.State plan volumes (plan.go), extensions (planextend.go),
// snapshots (plansnapshot.go) and thin pools (planthin.go, poolgrow.go), and compute capacity (capacity.go). Plan and Capacity
// share their arithmetic, so Plan accepts a published capacity.
//
// A plan is data. lvm/internal/lvmcmd converts it to commands.
//
// Caveat: the size of an extent is a property of the volume group; nothing here mixes lvm.Extents with lvm.Bytes.
package alloc
