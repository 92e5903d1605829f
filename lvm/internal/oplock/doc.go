// Package oplock decides which operation runs when: one operation for each volume (InFlight), one writer for each volume group
// (GroupLocks, with a watchdog over LVM commands that hang), one zeroing for each group (Turns), LVM's own lock on a group
// (LockVG), and the background work that Close waits for (Tasks).
package oplock
