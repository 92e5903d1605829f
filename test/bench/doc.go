// Package bench compares the driver with the LVM commands that it runs, in one lab node and in one run.
//
// The command test/cmd/bench starts a node, copies itself and the driver's image to it, and runs Measure there. With 0, 100 and
// 1000 volumes in the group, three candidates do the same work in turns:
//
//	stock     the node's LVM with Debian's configuration: an admin's command
//	tuned     the image's LVM with the driver's configuration, as a bare command
//	nodelvm   the driver in its image's root file system, over gRPC
//
// Then it publishes volumes to a pod's path, with a driver that limits I/O and one that does not.
//
// Measure writes Go's benchmark format, a line for each sample, for benchstat. Table renders the tables of test/bench/results.md
// from the same text.
//
// Caveats: a node is user-mode Linux, where a process costs ten times as much as elsewhere, so ratios count, not milliseconds.
// Measure waits until the driver has finished the work after its reply before it takes the next sample; that work has its own
// metrics (later-ns/op, later-lvm/op).
package bench
