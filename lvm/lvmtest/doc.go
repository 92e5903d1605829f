// Package lvmtest replaces the LVM command, the disks and the kernel below a host.Host. Tests of whole services then need
// neither root nor a disk. NewHost returns a Host that works; Node is a node whose LVM can be made to fail.
//
// The fake keeps the node's volume groups in memory. It accepts the argument vectors that the Host passes to lvm, refuses any
// other, allocates exactly the named extents, and prints reports in LVM's format. It does not model the content of volumes,
// other programs' use of the managed volumes, or time. The suite in package conformance compares it with the real LVM: it runs on
// both.
//
//	node, model            the groups, and the extents of each leg of a volume
//	runner, line           a command line, parsed as strictly as by lvm
//	lvcreate, thin,        what each command does; messages is what LVM sends a thin pool
//	lvchange, messages
//	active, kernel         device-mapper's devices
//	report, reader         LVM's report, and what a reader of the disks finds
//	fault                  commands that fail, and what commands leave that are killed
//
// The packages below this one have the tests of lvm/host, by subject, on the fake and with the build tag reallvm on real LVM:
//
//	hosttest, reallvm      what they share: a volume group, drivers on it, and comparisons
//	conformance            the suite that runs on both
//	operations, health,    requests and starts, what a driver reports, which volume a name means,
//	identity, thinpool,    thin pools, no data of deleted volumes, and disks that are lost
//	dataleak, diskfailure
//	prepare, capacity,     on real LVM alone: groups from blank disks, what fits in a group,
//	crash, power           and drivers that are killed
package lvmtest
