package api

// DriverName is the driver's name in CSIDriver, StorageClass, PersistentVolume and VolumeSnapshotContent objects.
const DriverName = "nodelvm.io"

// TopologyKey is the one topology segment of the driver, and the label in a PersistentVolume's node affinity; its value is the
// node's name.
const TopologyKey = "topology.nodelvm.io/node"

// MaxObject is the largest claim or VolumeSnapshot, in bytes as the API server encodes it, that the driver handles; such an object
// usually has 2 KiB. Tenants write them, the API server stores up to 1.5 MiB, and each node keeps those that wait for something.
const MaxObject = 64 << 10

// SnapshotGroup is the API group of the snapshot objects.
const SnapshotGroup = "snapshot.storage.k8s.io"

// GroupSnapshotGroup is the API group of the group snapshot objects.
const GroupSnapshotGroup = "groupsnapshot.storage.k8s.io"

// What csi-snapshotter and the snapshot controller write on a VolumeGroupSnapshotContent (external-snapshotter 8.7, pkg/utils): the first one
// while the driver creates the group snapshot, the second one when it is to be deleted, and the finalizer until it is.
const (
	AnnotationGroupBeingCreated = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created"
	AnnotationGroupBeingDeleted = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted"
	FinalizerGroupContent       = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"
)

// PrefixGroupSnapshot begins the CSI name of a group snapshot; the VolumeGroupSnapshot's UID follows.
const PrefixGroupSnapshot = "groupsnapshot-"

// csi-provisioner and csi-snapshotter name a volume and its PersistentVolume PrefixVolume and the claim's UID, a snapshot
// PrefixSnapshot and the VolumeSnapshot's UID, and its content PrefixContent and that UID.
const (
	PrefixVolume   = "pvc-"
	PrefixSnapshot = "snapshot-"
	PrefixContent  = "snapcontent-"
)

// PrefixClone begins the name of the snapshot from which a clone on another node is copied; the clone's UID follows.
const PrefixClone = "clone-"

// Annotations and labels that Kubernetes defines.
const (
	AnnotationSelectedNode    = "volume.kubernetes.io/selected-node"               // of a claim: the node that the scheduler selected; it remains after the claim is bound
	AnnotationNoNodeExpansion = "volume.kubernetes.io/node-expansion-not-required" // of a claim: the kubelet has nothing to do after an expansion
	AnnotationProvisionedBy   = "pv.kubernetes.io/provisioned-by"                  // of a PersistentVolume: the driver whose DeleteVolume csi-provisioner calls

	// LabelManagedBy names the node that has a VolumeSnapshotContent's snapshot. The snapshot controller sets it if it runs with
	// --enable-distributed-snapshotting, and csi-snapshotter on that node selects contents by it.
	LabelManagedBy = "snapshot.storage.kubernetes.io/managed-by"

	// LabelTemplateNode is what cluster-autoscaler adds to the labels of a node that does not exist yet.
	LabelTemplateNode = "cluster-autoscaler.kubernetes.io/template-node"
)

// FinalizerProvisioner is csi-provisioner's finalizer of a PersistentVolume. The node that has removed the volume removes it, which
// a lost node never does.
const FinalizerProvisioner = "external-provisioner.volume.kubernetes.io/finalizer"

// FinalizerCloned is csi-provisioner's of a claim that is cloned. When that claim is deleted, it removes it as soon as no clone waits.
const FinalizerCloned = "provisioner.storage.kubernetes.io/cloning-protection"

// Annotations of this driver. All but the reclaim policy, OnNodeLoss, TrimInterval, Losses and LearnedFrom hold a time (RFC 3339, UTC).
const (
	AnnotationLostSince            = "nodelvm.io/lost-since"              // Of a PersistentVolume or content, by nodelvm-controller: when it first observed the loss of the node or group.
	AnnotationVolumeGroupLostSince = "nodelvm.io/volume-group-lost-since" // Of a PersistentVolume, by the node: when its volume group disappeared.
	AnnotationAbandonedSince       = "nodelvm.io/abandoned-since"         // Of a PersistentVolume, by nodelvm-controller: when it released the claim of a retained volume.
	AnnotationReclaimPolicy        = "nodelvm.io/original-reclaim-policy" // Of a PersistentVolume, by nodelvm-controller: the policy, Delete or Retain, of a volume whose claim it releases; Retain is in force meanwhile.
	AnnotationRetriedAt            = "nodelvm.io/provisioning-retried-at" // Of a claim, by the node: when it last made csi-provisioner retry; no code reads it.
	AnnotationLosses               = "nodelvm.io/losses"                  // Of nodelvm-controller's lease: the time of each loss.

	// AnnotationOnNodeLoss of a StorageClass or VolumeSnapshotClass selects what nodelvm-controller does when the node or volume group of a
	// volume is lost: OnNodeLossRelease, or, without it, only an event. It is not a class parameter: parameters are for the driver,
	// immutable, and not copied to other objects.
	AnnotationOnNodeLoss = "nodelvm.io/on-node-loss"
	OnNodeLossRelease    = "release"

	// AnnotationTrimInterval of a StorageClass or a claim makes the driver trim the file system so often: a duration of 1h or more. A claim's
	// overrides its class's; "never" opts out.
	AnnotationTrimInterval = "nodelvm.io/trim-interval"
)

// LabelNodeGroup is nodelvm-controller's, on the CSIStorageCapacity of a node that does not exist yet: the name of the node group.
const LabelNodeGroup = "nodelvm.io/node-group"

// AnnotationLearnedFrom is nodelvm-controller's, on such an object with a learned capacity: name, time of creation and UID of the new node that it was
// learned from. Empty: it is the most that a node of the group published, and no new node has confirmed it. Without the annotation the
// capacity was declared.
const AnnotationLearnedFrom = "nodelvm.io/learned-from-node"

// Keys of a volume's context, which Kubernetes keeps in the PersistentVolume's volume attributes.
const (
	AttributeUUID        = "nodelvm.io/lv-uuid"      // The logical volume's UUID: the driver checks it before it uses the device.
	AttributeVolumeGroup = "nodelvm.io/volume-group" // The volume group's name, for admins and messages.
	AttributeSource      = "nodelvm.io/source"       // Of a copy: the handle of its source, a snapshot or volume.
	AttributeMkfsOptions = "nodelvm.io/mkfs-options" // The StorageClass's mkfsOptions, unchanged.
	AttributeEncryption  = "nodelvm.io/encryption"   // Of an encrypted volume: "luks2".
)

// Keys of a StorageClass's parameters that several packages need; lvm.Parameters has all.
const (
	ParameterVolumeGroup = "volumeGroup"
	ParameterLayout      = "layout"
	ParameterThinPool    = "thinPool"
	ParameterMkfsOptions = "mkfsOptions"
	ParameterEncryption  = "encryption"

	ParameterRestoreOnOtherNodes = "restoreOnOtherNodes" // "true": the scheduler places restores and clones.
)

// ParameterPrefix begins the keys that belong to Kubernetes. csi-provisioner takes the file system's type out of the class's
// parameters, and adds the claim's names to those of a request (--extra-create-metadata).
const (
	ParameterPrefix         = "csi.storage.k8s.io/"
	ParameterFSType         = ParameterPrefix + "fstype"
	ParameterClaimName      = ParameterPrefix + "pvc/name"
	ParameterClaimNamespace = ParameterPrefix + "pvc/namespace"

	// csi-provisioner copies these into a PersistentVolume as csi.nodeStageSecretRef and csi.nodeExpandSecretRef; it replaces ${pv.name},
	// ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['...']} in them. The kubelet passes these Secrets to the driver.
	ParameterStageSecretName       = ParameterPrefix + "node-stage-secret-name"
	ParameterStageSecretNamespace  = ParameterPrefix + "node-stage-secret-namespace"
	ParameterExpandSecretName      = ParameterPrefix + "node-expand-secret-name"
	ParameterExpandSecretNamespace = ParameterPrefix + "node-expand-secret-namespace"
)

// DefaultFSType is the file system of a class that names none.
const DefaultFSType = "ext4"

// Annotations of a move to another node (kube/move). Users write the first three, on claims; nodes write the others.
const (
	AnnotationMoveTo     = "nodelvm.io/move-to"     // Of a claim: the node that its volume shall be on. Removed or changed before the switch: the move is cancelled.
	AnnotationMoveWith   = "nodelvm.io/move-with"   // Of a claim: further claims of its namespace that move together with it, separated by commas.
	AnnotationMoveFinish = "nodelvm.io/move-finish" // Of a claim that has moved: the node whose former copy may be deleted now.
	AnnotationMoveStatus = "nodelvm.io/move-status" // Of a claim: how far its move is, for people. No node reads it.

	AnnotationMoveRecord = "nodelvm.io/move-record"      // Of a PersistentVolume, by the node that has it: what rebuilds it.
	AnnotationMovingTo   = "nodelvm.io/moving-to"        // The same: the node that may answer.
	AnnotationMoveOffer  = "nodelvm.io/move-offer"       // The same: how to copy the volume.
	AnnotationHandedOver = "nodelvm.io/move-handed-over" // The same: the hold for which the volume is the other node's from now on.
	AnnotationMoveAnswer = "nodelvm.io/move-answer"      // Of a PersistentVolume, by the node in AnnotationMovingTo: how far its copy is.
)

// Annotations of a full copy (kube/fullcopy), which nodes write.
const (
	AnnotationCopyOffer  = "nodelvm.io/copy-offer"  // Of a VolumeSnapshotContent, by the node that has the snapshot: how to copy it.
	AnnotationCloneOffer = "nodelvm.io/copy-offer-" // Of the PersistentVolume of a claim that is cloned, with the clone's UID behind: how to copy its snapshot.
	AnnotationCopyKey    = "nodelvm.io/copy-key"    // Of a claim, by its selected node: the TLS key of the process that copies.
)

// AudienceMove is that of the tokens with which nodes authenticate to each other. The API server does not accept them, and a source cannot use one
// for anything but to know its node.
const AudienceMove = "nodelvm.io/move"

// ParkedKey is a label that no node has. A PersistentVolume that requires it is parked: pods with its claim wait.
const ParkedKey = "nodelvm.io/moving"
