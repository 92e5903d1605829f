// Package filesystem knows what is on a volume's device: it finds, creates, checks and grows ext4, xfs and btrfs.
//
// One stage of a volume: Tools.Probe ("what is on the device?") -> PlanContent, a pure function -> Tools.Format, or Tools.Fsck. After the mount, CanResize
// and Resize. content.go has PlanContent and the reasons to refuse, mark.go the proof that a device was never mounted, remains.go the search for the
// rest of a damaged file system.
//
// Caveats. Only positive proof allows a format: no signature on a device proves that it was never in use. mkfs runs to its end even if the
// caller gives up. A tenant can write any content: the readers of superblocks believe no size in it.
package filesystem
