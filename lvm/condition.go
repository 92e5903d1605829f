package lvm

// Finding is one trouble, told to the people who can mend it.
type Finding struct {
	Trouble Trouble
	Group   string // the volume group's name
	VG      string // its UUID; "": the group is not there
	Volume  Volume // the volume; zero where the whole group is concerned
	Pool    string // the thin pool that it is about; "": none
	Cause   string // what makes it worth another report while it lasts, unlike another Text; "": nothing does
	Text    string // a sentence: what is wrong, with names and numbers, and what to do
}

// Trouble is one kind of condition of a volume or a group. Its text is the name that users see: the label of the metric, the reason
// of the event, and the alert after its prefix.
type Trouble string

const (
	TroubleDegraded    Trouble = "VolumeDegraded"         // RAID: a leg is missing or failed; the data is there
	TroubleRebuilding  Trouble = "VolumeRebuilding"       // RAID: a leg is being filled
	TroubleDataMissing Trouble = "VolumeDataMissing"      // a part of its data is on a physical volume or leg that is missing or failed
	TroubleMissing     Trouble = "PhysicalVolumeMissing"  // a physical volume of the group is missing
	TroublePoolNear    Trouble = "ThinPoolNearlyFull"     // a thin pool is nearly full, data or metadata
	TroublePoolFull    Trouble = "ThinPoolFull"           // its thin pool is full: writes fail
	TroublePoolFailed  Trouble = "ThinPoolFailed"         // its thin pool is read-only or needs a check
	TroubleSuspended   Trouble = "VolumeSuspended"        // I/O to it waits
	TroubleSilent      Trouble = "DiskUnresponsive"       // a disk of the group does not answer
	TroubleUnusable    Trouble = "VolumeGroupUnusable"    // Group.Problem
	TroubleUnprepared  Trouble = "VolumeGroupSetupFailed" // the group is not as it is declared
)

// HealthScope is what Health can see now: a condition that it does not find is over only if it could have been found.
type HealthScope struct {
	Groups  map[string]bool        // UUIDs of the groups that are here; true: they hold volumes of this cluster
	Volumes map[string]VolumeScope // by UUID: this cluster's that are ready
	Pools   map[string]bool        // by group UUID/pool, those that volumes of this cluster are in; true: the kernel tells how full they are
}

// VolumeScope is what can be seen of a volume.
type VolumeScope struct {
	Active      bool // the kernel has a device of it
	NeedsKernel bool // whether its data is all there is told by the kernel too: it is a RAID
}
