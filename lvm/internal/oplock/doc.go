// Package oplock decides which operation runs when. It has one operation for each volume (InFlight), one writer for each volume group
// (GroupLocks, with a watchdog over LVM commands that exceed their time limit), and one zeroing for each group (Turns). LockVG is
// LVM's own lock on a group, and Tasks is the background work that Close waits for.
package oplock
