// Package bench measures the driver beside the LVM commands that it starts, in one lab node and in one run.
//
// The command test/cmd/bench starts a node, copies itself and the driver's image in, and runs Measure there. For 0, 100
// and 1000 volumes in the group, in turns, three candidates do the same work:
//
//	stock     the node's LVM with Debian's configuration: what an admin types
//	tuned     the image's LVM with the driver's configuration, as a bare command
//	nodelvm   the driver in its image's root file system, over gRPC
//
// Measure writes Go's benchmark format, a line for each sample, for benchstat. Table makes the tables of
// test/bench/results.md from the same text.
//
// Caveats: a node is user-mode Linux, where a process costs ten times what it costs elsewhere, so ratios count, not
// milliseconds. Work that the driver does after its reply ends before the next sample is taken, and has its own metrics
// (later-ns/op, later-lvm/op).
package bench
