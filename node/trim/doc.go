// Package trim discards unused blocks of mounted file systems (fstrim(8)), so that a thin pool regains the space of deleted files. A
// pod cannot do that: FITRIM needs CAP_SYS_ADMIN. Storage classes and claims opt in with an interval. The package trims one file
// system of the node at a time, in ranges, and rests after each range for as long as the range took, so it uses the disks for at
// most half of the time.
package trim
