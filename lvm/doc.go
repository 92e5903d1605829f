// Package lvm gives volumes on this node's disks. It is the only package that knows LVM; everything above it works with
// Host and with plain values.
//
// The way of one volume, Host.Create:
//
//	read     Disks reads the groups' metadata straight from the disks into a State, without a process
//	plan     plan decides, as a pure function of the State: already there, a conflict, no room, or these extents
//	run      args builds lvcreate's argument vector with exactly those extents; the Runner runs it
//	verify   the disks are read again; the Volume that is returned is what stands there
//	settle   a moment later one commit marks it, and all others made meanwhile, as ready; using it does so at once
//
// Capacity is the same arithmetic as plan, so what it promises is what Create accepts. Delete marks a volume as deleted
// and returns; in the background it is zeroed (wipe.go), and only then do its extents return to the group. What must be
// remembered of a volume stands in its LVM tags (tags.go), written by the commit that makes it: a new driver on an old
// node knows everything.
//
// Where to find what:
//
//	api, errors, state     the vocabulary
//	spec, name, tags...    what may be asked for, and how it is remembered
//	plan..., place,        decisions, pure: planthin for pools and what they promise, planraid for legs, planextend,
//	capacity               plansnapshot; place picks extents
//	disks, sweep, devices, the direct reader, from the devices (probe, label) over the text (vgtext, fields) to the group
//	probe, vgimport, ...   (vgimport, vgsegments); metadata puts groups together, hurdles says what forbids changes
//	report                 LVM's own report: the fallback, and what the direct reader is held to (checked, difference)
//	health                 what is wrong with volumes, and the kernel's words for it
//	args, config, run,     the command lines, our lvm.conf, the one place that starts processes, and the name that lvm knows the
//	hostname               machine by meanwhile
//	kernel                 sysfs, device-mapper, zeroing, flushing
//	host, create, extend,  the operations, each under its group's lock
//	snapshot, activate,
//	delete
//	commit, settle         how a change is run, verified and flushed; the deferred commit
//	look, metrics,         what only reads; inventory is for the status page, and its words are lvm/inventory's
//	inventory, lockheld
//	reserve                volumes that are placed together, and the room kept for them
//	zeroed..., runs        which free extents hold nothing but zeroes; zerocreate and zeroextend see to the others before a raw
//	                       block volume gets them
//	wipe, turns, recover,  what goes on behind, and what a start mends
//	suspended, poolflush
//	prepare..., blank...,  groups from blank disks: what is declared, what is proven of a device, the commands
//	mounts
//	poolgrow...            thin pools that fill up: when they are enlarged, and when nothing more is promised
//	lock, hang, instance   who waits for whom: operations, hung commands, drivers and what they leave running
//
// Caveats:
//   - A command that writes is never killed; a caller who leaves early finds it, or its result, on the next call.
//   - LVM's exit status decides nothing. After each command the disks are read and tell what happened. The one exception:
//     only an lvcreate that ended well has blanked the volume's beginning; any other is done over.
//   - A logical volume without our tags, with damaged ones, or of another cluster is never changed.
//   - Names under /dev/GROUP and /dev/mapper are never trusted: a device is found through sysfs, by its UUID.
//   - An admin's lvm excludes ours through the lock directory that both share; what it changes between our reading and
//     our command makes that command fail, and the plan is made anew.
package lvm
