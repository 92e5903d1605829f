// Package bench measures the driver beside the commands that it stands on, in one lab node and in one run.
//
// The command test/cmd/bench raises a node, carries itself and the driver's image in, and runs Measure there. For 0, 100
// and 1000 volumes in the group, round after round, the same work is done in turns by
//
//	stock     the node's own LVM with Debian's configuration: what an admin types
//	tuned     the image's LVM with the driver's configuration, as a bare command
//	nodelvm   the driver in its image's root file system, over gRPC
//
// What Measure writes is Go's benchmark format, a line for each sample, for benchstat; Table makes the tables of
// docs/explanation/performance.md of the very same text.
//
// Caveats: a node is user-mode Linux, where a process costs ten times what it costs elsewhere, so ratios count, not
// milliseconds. Work that the driver does after its reply is waited for before the next sample is taken, and stands in
// metrics of its own (later-ns/op, later-lvm/op), so that nothing is hidden.
package bench
