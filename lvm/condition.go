package lvm

// Condition is one condition of a volume, thin pool, disk or volume group, as Health reports it.
type Condition struct {
	Type   ConditionType
	Group  VGName // the volume group's name
	VG     VGUUID // its UUID; "": the volume group is not on this node
	Volume Volume // zero if the condition concerns the whole volume group
	Pool   string // the thin pool's name; "": none

	Cause string // while the condition lasts, another Cause than "" is reported again, another Text is not
	Text  string // a sentence: what is wrong, with names and numbers, and what to do
}

// MustRepeat reports whether a condition, which was reported as was, must be reported again as c.
func (c Condition) MustRepeat(was Condition) bool { return c.Cause != "" && c.Cause != was.Cause }

// ConditionType is the kind of a condition. Its value is the metric's label, the event's reason, and the alert's name after its
// prefix.
type ConditionType string

const (
	ConditionVolumeDegraded        ConditionType = "VolumeDegraded"        // RAID: a leg is missing or failed; the data is complete
	ConditionVolumeRebuilding      ConditionType = "VolumeRebuilding"      // RAID: LVM copies data to a leg.
	ConditionVolumeDataMissing     ConditionType = "VolumeDataMissing"     // Some of the data is on a missing or failed physical volume or leg.
	ConditionVolumeOnRemovedDisk   ConditionType = "VolumeOnRemovedDisk"   // Its device uses a disk that was removed and is back as another device: reads and writes fail.
	ConditionPhysicalVolumeMissing ConditionType = "PhysicalVolumeMissing" // of the volume group

	ConditionThinPoolNearlyFull ConditionType = "ThinPoolNearlyFull" // its data or its metadata
	ConditionThinPoolFull       ConditionType = "ThinPoolFull"       // the volume's thin pool is full: writes fail
	ConditionThinPoolFailed     ConditionType = "ThinPoolFailed"     // the volume's thin pool is read-only or needs a check

	ConditionThinPoolTransactionMismatch ConditionType = "ThinPoolTransactionMismatch" // LVM's metadata and the thin pool have different transaction ids

	ConditionVolumeSuspended        ConditionType = "VolumeSuspended"            // its I/O waits for a resume
	ConditionDiskUnresponsive       ConditionType = "DiskUnresponsive"           // a disk of the volume group
	ConditionVolumeGroupUnusable    ConditionType = "VolumeGroupUnusable"        // Group.Problem
	ConditionMixedBlockSizes        ConditionType = "VolumeGroupMixedBlockSizes" // the volume group's disks have logical blocks of several sizes
	ConditionVolumeGroupSetupFailed ConditionType = "VolumeGroupSetupFailed"     // the volume group differs from its declaration

	ConditionPhysicalVolumeNotAccepted ConditionType = "PhysicalVolumeNotAccepted" // of the node: the driver ignores a physical volume that its record does not name

	ConditionFileSystemNearlyFull       ConditionType = "FileSystemNearlyFull"       // less than a tenth of a mounted file system is available
	ConditionFileSystemFull             ConditionType = "FileSystemFull"             // less than 2 % of a mounted file system is available
	ConditionFileSystemInodesNearlyUsed ConditionType = "FileSystemInodesNearlyUsed" // a tenth or less of a mounted file system's inodes is free

	ConditionIOLimitsNotSet ConditionType = "IOLimitsNotSet" // Pods use the volume without the limits of its VolumeAttributesClass.

	ConditionFileSystemReadOnly      ConditionType = "FileSystemReadOnly"      // Linux has made the volume's file system read-only.
	ConditionEncryptionHeaderDamaged ConditionType = "EncryptionHeaderDamaged" // An encrypted volume's LUKS header is damaged or lost, or one of its two copies.
	ConditionSignatureFound          ConditionType = "SignatureFound"          // A raw block volume begins or ends with a signature on which the node itself might act: LVM, md, DDF, IMSM, bcache or btrfs. The volume's user can write one.
)

// Severity says how urgent a condition is. An alert has the severity of its condition.
type Severity string

const (
	SeverityInfo     Severity = "info"     // work in progress, which ends by itself
	SeverityWarning  Severity = "warning"  // pods can read and write all data; an admin or a user has to act soon
	SeverityCritical Severity = "critical" // data is missing, or writes fail or wait
)

// Severity returns the severity of a type; that of an unknown type is critical.
func (t ConditionType) Severity() Severity {
	switch t {
	case ConditionVolumeRebuilding:
		return SeverityInfo
	case ConditionVolumeDegraded, ConditionThinPoolNearlyFull, ConditionThinPoolTransactionMismatch, ConditionVolumeGroupUnusable, ConditionVolumeGroupSetupFailed, ConditionMixedBlockSizes, ConditionPhysicalVolumeNotAccepted,
		ConditionFileSystemNearlyFull, ConditionFileSystemInodesNearlyUsed, ConditionSignatureFound, ConditionIOLimitsNotSet:
		return SeverityWarning
	default:
		return SeverityCritical
	}
}

// HealthScope is what Health can observe now. A condition that it does not find is resolved only if it was observable.
type HealthScope struct {
	Groups  map[VGUUID]bool        // UUIDs of the volume groups on this node; true: with volumes of this cluster
	Volumes map[string]VolumeScope // by UUID: the ready volumes of this cluster
	Pools   map[string]bool        // by group UUID/pool: the pools with volumes of this cluster; true: the kernel reports their usage
}

// VolumeScope is what Health can observe of a volume.
type VolumeScope struct {
	Active      bool // the kernel has its device
	NeedsKernel bool // only the kernel knows whether its data is complete: it is a RAID
}
