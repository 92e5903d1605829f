// Package engine reads, locks and changes the volume groups of this node. Each LVM command of the driver runs here (commit.go), and
// each change follows one sequence. The caller acquires the group's lock and reads the disks (Locked), plans, and calls Commit.
// Commit runs the commands and reads the disks again. The caller verifies what the disks hold and calls Flush. LVM's exit status
// decides nothing. ReadyTags tags new volumes as ready, many with one commit.
package engine
