package api

// Reasons of the node's events. Conditions have their own: see lvm.Condition.
const (
	ReasonUnreferencedVolumes         = "UnreferencedVolumes"
	ReasonAbandonedVolumes            = "AbandonedVolumes"
	ReasonOtherClusterVolumes         = "OtherClusterVolumes"
	ReasonVolumeNotFound              = "VolumeNotFound"
	ReasonVolumeGroupLost             = "VolumeGroupLost"
	ReasonImmediateBindingUnsupported = "ImmediateBindingUnsupported"
	ReasonSourceNodeSelected          = "SourceNodeSelected"
	ReasonSourceNodeExcluded          = "SourceNodeExcluded" // of a clone: a rule of its pod
	ReasonSourceOfOtherDriver         = "SourceOfOtherDriver"
	ReasonSourceNotCopied             = "SourceNotCopied" // the source's node cannot take the snapshot from which a clone on another node is copied
	ReasonDuplicateVolumeHandle       = "DuplicateVolumeHandle"
	ReasonPodVolumesOnDifferentNodes  = "PodVolumesOnDifferentNodes" // the pod's claims are on several nodes
	ReasonInsufficientCapacityForPod  = "InsufficientCapacityForPod" // some of the pod's claims are on this node, which has no capacity for the others
	ReasonFileSystemResizeRequired    = "FileSystemResizeRequired"   // as the kubelet's, and the two below
	ReasonVolumeResizeSuccessful      = "VolumeResizeSuccessful"
	ReasonVolumeResizeFailed          = "VolumeResizeFailed"
	ReasonVolumeModify                = "VolumeModify" // as external-resizer's, and the three below
	ReasonVolumeModifySuccessful      = "VolumeModifySuccessful"
	ReasonVolumeModifyFailed          = "VolumeModifyFailed"
	ReasonVolumeModifyCancelled       = "VolumeModifyCanceled"
	ReasonVolumeMoving                = "VolumeMoving"        // a move to another node begins its next phase
	ReasonVolumeMoveWaiting           = "VolumeMoveWaiting"   // a move waits for a user
	ReasonVolumeMoved                 = "VolumeMoved"         // the volume is on the other node
	ReasonVolumeMoveCancelled         = "VolumeMoveCancelled" // before the volume was handed over
	ReasonSnapshotsNotMoved           = "SnapshotsNotMoved"   // the snapshots of a volume that moves stay on its node
	ReasonTrimFailed                  = "TrimFailed"
	ReasonDriverNotRegistered         = "DriverNotRegistered" // the node lacks its topology label, or its CSINode the driver
)

// Reasons of nodelvm-controller's events.
const (
	ReasonVolumeLost              = "VolumeLost"
	ReasonVolumeLostResolved      = "VolumeLostResolved"
	ReasonVolumeInUse             = "VolumeInUse"
	ReasonClaimDeleted            = "ClaimDeleted"
	ReasonPodDeleted              = "PodDeleted"
	ReasonPersistentVolumeDeleted = "PersistentVolumeDeleted"
	ReasonVolumeAbandoned         = "VolumeAbandoned"
	ReasonSelectedNodeRemoved     = "SelectedNodeRemoved"
	ReasonClaimMismatch           = "ClaimMismatch"
	ReasonSnapshotMismatch        = "SnapshotMismatch"
	ReasonSnapshotLost            = "SnapshotLost"
	ReasonSnapshotDeleted         = "SnapshotDeleted"
	ReasonNodeRemovalLosesVolumes = "NodeRemovalLosesVolumes"
	ReasonWaitingForCapacity      = "WaitingForCapacity" // no node can have the claim's volume, or no claim of the class can get one
)
