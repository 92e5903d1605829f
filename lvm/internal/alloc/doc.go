// Package alloc decides where volumes go: pure functions of a lvm.State that plan volumes (plan.go), extensions
// (planextend.go), snapshots (plansnapshot.go) and thin pools (planthin.go, poolgrow.go), and compute capacity
// (capacity.go). The same arithmetic serves Plan and Capacity, so a published capacity is what a plan accepts.
//
// A plan is data. lvm/internal/lvmcmd turns it into commands.
//
// Caveat: extents have a size that is a property of the group; nothing here mixes lvm.Extents with lvm.Bytes.
package alloc
