// Package host creates, extends, snapshots, activates and deletes volumes on this node's volume groups. One Host serves a
// node; its methods are safe for concurrent use.
//
// The flow of Host.Create:
//
//	read    ondisk reads the groups' metadata from the disks, without a process
//	plan    alloc decides: already there, a conflict, insufficient capacity, or these extents
//	run     lvmcmd runs lvcreate with exactly those extents
//	verify  the driver reads the disks again and returns the volume that they describe
//	tag     a later commit tags it as ready together with other new volumes; NodeStageVolume requests that at once
//
// Host.Delete tags a volume as deleting and returns. In the background the driver zeroes it, then removes it.
//
// Each change holds its group's lock, and runs its commands through package engine. Start has package recovery recover what an
// earlier run left unfinished. A Host holds the engine and the parts that work in the background (ready, wipe, thinpool, prepare,
// recovery); its own methods are the operations.
//
// Caveats:
//   - A command that writes is never killed. A caller that leaves early finds the command, or its result, on the next call.
//   - LVM's exit status decides nothing: after each command the disks are read. One exception: only an lvcreate that exits
//     with 0 has blanked the volume's beginning, so any other is removed and created again.
//   - Names under /dev/GROUP and /dev/mapper are never trusted: a device is found through sysfs by its UUID.
//   - An admin's lvm and the driver exclude each other through the lock directory that both use. A change that an admin
//     makes between a reading and a command makes the command fail, and the driver plans again.
package host
