package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

type fault struct {
	name  string
	plant func(f *facts)
	check string
	where string
	says  string
}

// faults are planted one at a time in the sound cluster. Exactly one check must report each, with this text.
var faults = []fault{
	{"missing kernel module", func(f *facts) { f.answers[1].page.Checks.Modules[1].State = report.ModuleMissing },
		"kernel modules", "node-2", "the kernel 6.1.0-1-amd64 has no module dm-thin-pool, which StorageClass thin needs"},
	{"missing module for RAID", func(f *facts) {
		f.classes[0].Parameters["layout"] = "raid1"
		f.answers, f.volumes, f.contents = f.answers[:1], f.volumes[:1], nil
	},
		"kernel modules", "node-1", "no module dm-raid, which StorageClass local needs"},
	{"no group", func(f *facts) {
		f.classes = append(f.classes, class("archive", map[string]string{"volumeGroup": "vg-slow"}))
		for i := range f.answers {
			f.answers[i].page.Classes = append(f.answers[i].page.Classes, report.Class{Name: "archive"})
		}
	}, "groups of classes", "StorageClass archive", `none of the 2 nodes that report their groups has the volume group "vg-slow": claims stay Pending`},
	{"two groups of one name", func(f *facts) {
		f.answers[0].page.Groups[0].Problem = "2 volume groups on this node have the name vg-data: rename one (vgrename UUID NEWNAME)"
		f.answers[0].page.Classes[0].Offers[0].Obstacle = f.answers[0].page.Groups[0].Problem
	}, "volume groups", "node-1, volume group vg-data", "2 volume groups on this node have the name vg-data"},
	{"full pool", func(f *facts) {
		f.answers[1].page.Groups[0].Pools[0].State = report.PoolFull
		full := report.Condition{Type: "ThinPoolFull", Group: "vg-data", Pool: "nodelvm-thin", Volume: vg2 + "/pvc-2", Text: "its thin pool is full"}
		f.answers[1].page.Conditions = []report.Condition{full, full}
	}, "conditions", "node-2, thin pool vg-data/nodelvm-thin", "ThinPoolFull: its thin pool is full"},
	{"pool without zeroing", func(f *facts) {
		f.answers[0].page.Groups[0].Pools[0].Zero = false
		f.answers[0].page.Classes[1].Offers[0] = report.Offer{Group: "vg-data", Obstacle: "the thin pool shows old data in new blocks"}
		f.capacities[1].MaximumVolumeSize = nil
	}, "thin pools", "node-1, thin pool vg-data/nodelvm-thin", "does not zero new blocks"},
	{"stale lock", func(f *facts) { f.answers[0].page.Groups[0].LockHeldSeconds = 300 },
		"locks", "node-1, volume group vg-data", "held its lock (/run/lock/lvm/V_vg-data) for 5m0s"},
	{"wrong mount propagation", func(f *facts) { f.answers[0].page.Checks.Kubelet.Propagation = report.PropagationSlave },
		"mount propagation", "node-1", "do not leave the driver's container (/var/lib/kubelet is mounted slave)"},
	{"kubelet elsewhere", func(f *facts) { f.answers[0].page.Checks.Kubelet.Used = false },
		"mount propagation", "node-1", "is not the kubelet's root directory"},
	{"missing RBAC rule", func(f *facts) { f.wrongRights = []right{{resource: "persistentvolumeclaims", verb: "update"}} },
		"rights", "ServiceAccount nodelvm-system/nodelvm", "may not update persistentvolumeclaims"},
	{"no authorization", func(f *facts) { f.wrongRights = []right{{resource: "secrets", verb: "list", withheld: true}} },
		"rights", "ServiceAccount nodelvm-system/nodelvm", "it may list secrets, which the chart does not give it"},
	{"snapshot-controller without the distributed flag", func(f *facts) { f.controllers[0].Spec.Template.Spec.Containers[0].Args = nil },
		"snapshots", "Deployment kube-system/snapshot-controller", "runs without --enable-distributed-snapshotting"},
	{"the same, with a controller that cannot be seen", func(f *facts) { f.controllers, f.contents[0].Labels = nil, nil },
		"snapshots", "VolumeSnapshotContent snapcontent-snap-1", "so no node creates its snapshot"},
	{"a content made by hand for a snapshot that is nowhere", func(f *facts) { f.contents[0].Labels, f.contents[0].Spec.Source.SnapshotHandle = nil, "vg/lost" },
		"snapshots", "VolumeSnapshotContent snapcontent-snap-1", "no node has its snapshot vg/lost"},
	{"driver not registered", func(f *facts) { f.csiNodes[1].Spec.Drivers = nil },
		"registration", "node-2", "CSINode node-2 does not name nodelvm.io: csi-provisioner creates no volume there"},
	{"registration refused", func(f *facts) {
		f.csiNodes = f.csiNodes[:1]
		f.answers[1].page.Checks.Registration = report.Registration{State: report.RegistrationRefused, Error: "bad socket"}
	}, "registration", "node-2", "CSINode node-2 does not name nodelvm.io: no pod with a volume starts there"},
	{"no CSIDriver", func(f *facts) { f.driver = nil }, "driver object", "CSIDriver nodelvm.io", "no CSIDriver object"},
	{"attachRequired", func(f *facts) { f.driver.Spec.AttachRequired = nil }, "driver object", "CSIDriver nodelvm.io", "attachRequired is true"},
	{"no storageCapacity", func(f *facts) { f.driver.Spec.StorageCapacity = ptr.To(false) }, "driver object", "CSIDriver nodelvm.io", "storageCapacity"},
	{"no DaemonSet", func(f *facts) { f.daemonSet, f.snapshotAPI = nil, false }, "daemonset", "DaemonSet nodelvm", "no DaemonSet of privileged pods has the labels"},
	{"DaemonSet without nodes", func(f *facts) { f.daemonSet.Status.DesiredNumberScheduled = 0 }, "daemonset", "DaemonSet nodelvm-system/nodelvm", "the DaemonSet selects no node"},
	{"another label in allowedTopologies", func(f *facts) {
		f.classes[0].AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: api.TopologyKey, Values: []string{"node-1"}}, {Key: "topology.kubernetes.io/zone", Values: []string{"a"}}}}}
	}, "storage classes", "StorageClass local", "allowedTopologies names the label topology.kubernetes.io/zone"},
	{"Secrets that the driver does not use", func(f *facts) {
		f.classes[0].Parameters["csi.storage.k8s.io/controller-expand-secret-name"], f.keyPolicy = "a", policyOf("[]")
	},
		"storage classes", "StorageClass local", "the parameter csi.storage.k8s.io/controller-expand-secret-name is not for this driver"},
	{"a Secret without encryption", func(f *facts) {
		f.classes[0].Parameters["csi.storage.k8s.io/node-stage-secret-name"], f.keyPolicy = "a", policyOf("[]")
	},
		"storage classes", "StorageClass local", "the parameter csi.storage.k8s.io/node-stage-secret-name is not for this driver"},
	{"memory limit", func(f *facts) {
		f.drivers[1].Spec.Containers = []corev1.Container{{Name: "csi-provisioner"}, {Name: "nodelvm"}}
		for i := range f.drivers[1].Spec.Containers {
			f.drivers[1].Spec.Containers[i].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		}
	}, "daemonset", "node-2", "the container nodelvm of the driver's pod nodelvm-node-2 has a memory limit (128Mi)"},
	{"pods that are refused", func(f *facts) { f.drivers, f.answers, f.volumes, f.contents = nil, nil, nil, nil }, "missing pods", "DaemonSet nodelvm-system/nodelvm",
		"the DaemonSet selects 2 nodes, but 0 have a driver pod"},
	{"node without a pod", func(f *facts) {
		f.daemonSet.Status.DesiredNumberScheduled, f.drivers, f.answers, f.classes, f.contents = 1, f.drivers[:1], f.answers[:1], f.classes[:1], nil
	}, "lost volumes", "claim shop/data-db-1", `no driver pod runs on "node-2"`},
	{"lost volume", func(f *facts) { f.answers[0].page.Volumes = nil }, "lost volumes", "claim shop/data-db-0",
		"volume group vg-data is on node-1, and has no logical volume pvc-1 of the driver: it was removed, or an older state of the group's metadata was restored"},
	{"lost group", func(f *facts) {
		f.answers, f.volumes, f.classes, f.contents = f.answers[:1], f.volumes[:1], nil, nil
		f.answers[0].page.Groups, f.answers[0].page.Volumes, f.answers[0].page.Classes = nil, nil, nil
		f.volumes[0].Spec.CSI.VolumeAttributes = map[string]string{api.AttributeVolumeGroup: "vg-data"}
	}, "lost volumes", "claim shop/data-db-0", "its volume group vg-data is not on the disks of node-1"},
	{"renamed volume", func(f *facts) { f.answers[0].page.Volumes[0].LV = "mine" },
		"lost volumes", "claim shop/data-db-0", "its logical volume vg-data/pvc-1 on node-1 was renamed to mine: the driver refuses all requests for it"},
	{"claim without its PersistentVolume", func(f *facts) {
		claim := expandedClaim("10Gi")
		claim.Status.Phase, claim.Annotations = corev1.ClaimLost, map[string]string{api.AnnotationStorageProvisioner: api.DriverName}
		f.claims, f.volumes = append(f.claims, claim), f.volumes[1:]
	}, "lost volumes", "claim shop/data-db-0", "the claim's PersistentVolume pvc-1 was deleted"},
	{"renamed volume whose tags do not name its handle", func(f *facts) {
		v := &f.answers[0].page.Volumes[0]
		v.ID, v.LV = vg1+"/mine", "mine"
		f.volumes[0].Spec.CSI.VolumeAttributes = map[string]string{api.AttributeUUID: v.UUID}
	}, "lost volumes", "claim shop/data-db-0", "its logical volume vg-data/pvc-1 on node-1 was renamed to mine"},
	{"volume without its tags", func(f *facts) {
		f.answers[0].page.Volumes = nil
		f.answers[0].page.Groups[0].PVs = []report.PV{{UUID: "a", Device: "/dev/sda", Allocated: []report.ExtentRange{{Count: 1, LV: "pvc-1"}}}}
	}, "lost volumes", "claim shop/data-db-0", "its logical volume vg-data/pvc-1 is on node-1, without valid tags of the driver"},
	{"volume whose state tag was removed", func(f *facts) {
		f.answers[0].page.Volumes = nil
		f.answers[0].page.Damaged = []string{"logical volume vg-data/pvc-1 has no tag nodelvm.state"}
	}, "invalid tags", "node-1", "vg-data/pvc-1 has no tag"},
	{"snapshots of a deleted node", func(f *facts) {
		f.contents = nil
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			f.contents = append(f.contents, snapshot(name, "node-5", vg2))
		}
	}, "lost snapshots", "snapshots of node-5", "no driver pod runs on node-5, which has the snapshots shop/a, shop/b, shop/c, shop/d, shop/e and 1 more"},
	{"snapshot that its node lacks", func(f *facts) { f.contents = append(f.contents, snapshot("a", "node-1", vg1)) },
		"lost snapshots", "snapshots of node-1", "the snapshots shop/a are not on the disks of node-1"},
	{"affinity of several nodes", func(f *facts) {
		terms := &f.volumes[0].Spec.NodeAffinity.Required.NodeSelectorTerms
		*terms = append(*terms, f.volumes[1].Spec.NodeAffinity.Required.NodeSelectorTerms...)
	}, "lost volumes", "claim shop/data-db-0", "does not name one node by topology.nodelvm.io/node"},
	{"pod that cannot start", func(f *facts) {
		f.drivers[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "nodelvm", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	}, "daemonset", "node-1", "its container nodelvm waits (ImagePullBackOff)"},
	{"init container that fails", func(f *facts) {
		done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
		f.drivers[0].Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: done}, {Name: "groups", State: failed}}
		f.drivers[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "nodelvm", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
	}, "daemonset", "node-1", "its container groups has ended with status 3"},
	{"pod that is not ready", func(f *facts) {
		f.drivers[0].Status.Conditions[0].Status, f.drivers[0].Status.Conditions[0].Reason = corev1.ConditionFalse, "ContainersNotReady"
	},
		"daemonset", "node-1", "ContainersNotReady"},
	{"sidecar without its flag", func(f *facts) { f.container("csi-provisioner").Args = neededArgs["csi-provisioner"][1:] },
		"sidecars", "DaemonSet nodelvm-system/nodelvm", "csi-provisioner runs without --node-deployment"},
	{"old sidecar", func(f *facts) { f.container("csi-snapshotter").Image = "x:5000/y/csi-snapshotter:v6.1.0" },
		"sidecars", "DaemonSet nodelvm-system/nodelvm", "older than the tested version (v8)"},
	{"no provisioner", func(f *facts) { f.container("csi-provisioner").Name = "other" }, "sidecars", "DaemonSet nodelvm-system/nodelvm", "no claim is provisioned"},
	{"node that is not Ready", func(f *facts) {
		f.nodes = []corev1.Node{{ObjectMeta: labelled("node-2"), Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}}}}}
	}, "nodes ready", "node-2", "the node is not Ready, so pods with its volumes cannot run: Kubelet stopped"},
	{"budget that blocks a drain", func(f *facts) {
		f.pods = []corev1.Pod{userOf("data-db-0", "db-0")}
		f.budgets = []policyv1.PodDisruptionBudget{budget("always", 1, 1)}
	}, "disruption budgets", "PodDisruptionBudget shop/always", "requires 1 of 1 pods, so no pod can be evicted now: kubectl drain of node node-1 waits for pod db-0"},
	{"raw block volume for a user other than root", func(f *facts) {
		f.pods = []corev1.Pod{failingBlockPod()}
	}, "raw block volumes", "pod shop/db-0", "its container c fails, and does not run as root: it cannot open the raw block volume of claim data-db-0"},
	{"snapshot with an error", func(f *facts) {
		f.snapshots = []namespaceSnapshot{waitingSnapshot("snap-1")}
	}, "waiting snapshots", "VolumeSnapshot shop/snap-1", "csi-snapshotter on the node of its claim data-db-1 has not finished it"},
	{"snapshot that no controller sees", func(f *facts) {
		f.snapshots = []namespaceSnapshot{waitingSnapshot("snap-2")}
	}, "waiting snapshots", "VolumeSnapshot shop/snap-2", "has no VolumeSnapshotContent: no snapshot-controller works on it"},
	{"claim that fits nowhere", func(f *facts) {
		w := waitingShop()
		f.nodes, f.claims, f.volumes, f.pods = w.nodes, w.claims, w.volumes, w.pods
	}, "claims", "claim shop/data", "no node can have the volume; node-2: volume group vg-data has capacity for a volume of at most 80 GiB, and the claim requests 200 GiB; node-1: the pod also uses claim log"},
	{"pod whose node is cordoned", func(f *facts) {
		f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{unscheduled("data-db-0", "db-0")}
		f.nodes = []corev1.Node{{ObjectMeta: labelled("node-1"), Spec: corev1.NodeSpec{Unschedulable: true}}}
	}, "waiting pods", "pod shop/db-0", "its volume (claim data-db-0) is on node-1, which is cordoned"},
	{"wrong key", func(f *facts) {
		pod := userOf("data-db-0", "db-0")
		pod.UID, pod.Status.Phase = "p", corev1.PodPending
		f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{pod}
		f.events = map[types.UID][]corev1.Event{"p": {
			warning("FailedMount", `MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = InvalidArgument desc = another key`, 6),
			warning("FailedMount", `MountVolume.SetUp failed for volume "config" : configmap "c" not found`, 3)}}
	}, "waiting pods", "pod shop/db-0", `it is assigned to node-1; FailedMount, 6 s ago: MountVolume.MountDevice failed for volume "pvc-1" : rpc error: code = InvalidArgument desc = another key`},
	{"pod whose claim was deleted", func(f *facts) {
		pod := unscheduled("data-db-0", "db-0")
		pod.Spec.Volumes = append(pod.Spec.Volumes, userOf("wal-db-0", "").Spec.Volumes...)
		f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{pod}
	}, "claims", "pod shop/db-0", "claim wal-db-0 does not exist, and pod db-0 waits for it"},
	{"expansion that fails", func(f *facts) {
		f.claims = []corev1.PersistentVolumeClaim{expandedClaim("20Gi")}
		f.events = map[types.UID][]corev1.Event{"data-db-0": {warning("VolumeResizeFailed", "volume group vg-data has capacity for at most 12 GiB", 6)}}
	}, "expansions", "claim shop/data-db-0", "its expansion from 10Gi to 20Gi fails: volume group vg-data has capacity for at most 12 GiB (6 s ago)"},
	{"expansion that failed, and whose event is gone", func(f *facts) {
		f.claims = []corev1.PersistentVolumeClaim{expandedClaim("20Gi")}
		f.claims[0].Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: "no space"}}
	}, "expansions", "claim shop/data-db-0", "its expansion from 10Gi to 20Gi fails: no space"},
	{"expansion that the kubelet cannot complete", func(f *facts) {
		pod := userOf("data-db-0", "db-0")
		pod.UID, pod.Status.Phase = "p", corev1.PodRunning
		f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("20Gi")}, []corev1.Pod{pod}
		f.events = map[types.UID][]corev1.Event{"p": {warning("VolumeResizeFailed", `NodeExpandVolume failed for volume "pvc-1": another key`, 6)}}
	}, "expansions", "claim shop/data-db-0", "another key (6 s ago)"},
	{"change of the attributes class that fails", func(f *facts) {
		changes(f, "gold", corev1.PersistentVolumeClaimModifyVolumeInfeasible, "this node limits no I/O")
	}, "attributes", "claim shop/data-db-0", "the change of its volume to the VolumeAttributesClass gold fails: this node limits no I/O"},
	{"attributes class that does not exist", func(f *facts) { changes(f, "", corev1.PersistentVolumeClaimModifyVolumePending, "") },
		"attributes", "claim shop/data-db-0", "it names the VolumeAttributesClass gold, which does not exist"},
	{"attributes class that no driver knows", func(f *facts) { changes(f, "", "", "") },
		"attributes", "claim shop/data-db-0", "it names the VolumeAttributesClass gold, and no driver has begun to change its volume"},
	{"move that waits for a pod", func(f *facts) { moves(f, api.MoveStopping, 20*time.Minute) },
		"moves", "claim shop/data-db-0", "the move of its volume to node-2 is Stopping, unchanged for 20m: delete pod db-0"},
	{"move that no node answers", func(f *facts) {
		f.claims = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}
		f.claims[0].Annotations = map[string]string{api.AnnotationMoveTo: "node-2"}
	}, "moves", "claim shop/data-db-0", "the move of its volume to node-2 has not begun: node node-1 has not answered: does its driver move volumes (move.enabled)?"},
	{"silent node", silence, "nodes answer", "node-2", "has not answered within 10s"},
	{"deleted Node object", func(f *facts) {
		silence(f)
		f.nodes = []corev1.Node{{ObjectMeta: labelled("node-1")}}
	}, "nodes answer", "node-2", "its Node object is deleted"},
	{"driver that is not ready", func(f *facts) { f.answers[1].page.NotReady = "device-mapper is not in this kernel" },
		"nodes answer", "node-2", "device-mapper is not in this kernel"},
	{"immediate class", func(f *facts) {
		f.classes[0].VolumeBindingMode = nil
		f.capacities = slices.DeleteFunc(f.capacities, func(c storagev1.CSIStorageCapacity) bool { return c.StorageClassName == "local" })
	}, "storage classes", "StorageClass local", "volumeBindingMode is Immediate"},
	{"wrong parameter", func(f *facts) {
		for i := range f.answers {
			f.answers[i].page.Classes[0] = report.Class{Name: "local", Error: `the StorageClass has the unknown parameter "layuot"`}
		}
	}, "storage classes", "StorageClass local", `unknown parameter "layuot"`},
	{"encrypted class that the policy does not name", func(f *facts) {
		f.classes[0].Parameters[api.ParameterEncryption], f.keyPolicy = "luks2", policyOf("[ 'thin', \"thin\" ]")
	}, "storage classes", "StorageClass local", "does not name the class: the API server refuses their PersistentVolumes"},
	{"encrypted class that was deleted, and that the policy still names", func(f *facts) { f.keyPolicy = policyOf("['gone']") },
		"storage classes", "StorageClass gone", "it does not exist, and the admission policy nodelvm-node-restriction lets nodes create its encrypted volumes"},
	{"keys that an annotation names", func(f *facts) {
		f.classes[0].Parameters[api.ParameterEncryption], f.keyPolicy = "luks2", policyOf("['thin', 'local']")
		f.classes[0].Parameters[api.ParameterExpandSecretName] = "${pvc.annotations['key']}"
	}, "storage classes", "StorageClass local", "node-expand-secret-name contains ${pvc.annotations[...]}, which the admission policy does not allow"},
	{"too few disks", func(f *facts) {
		f.answers[0].page.Classes[0].Offers[0].Obstacle = "volume group vg-data has 1 disks, but the layout needs 2"
	},
		"groups of classes", "node-1", "no capacity for StorageClass local: volume group vg-data has 1 disks"},
	{"full metadata area", func(f *facts) { f.answers[0].page.Groups[0].MetadataFree = MiB }, "volume groups", "node-1, volume group vg-data", "metadata area is nearly full"},
	{"no capacity", func(f *facts) { f.capacities = f.capacities[1:] }, "capacity", "StorageClass local", "no CSIStorageCapacity publishes the capacity of node-1: the scheduler puts no pod"},
	{"no capacity anywhere", func(f *facts) { f.capacities = nil }, "capacity", "StorageClasses local, thin", "no CSIStorageCapacity publishes the capacity of node-1, node-2: the scheduler puts no pod"},
	{"csi-provisioner that crashes, and publishes nothing", func(f *facts) {
		f.capacities = f.capacities[2:]
		f.drivers[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "csi-provisioner", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	}, "daemonset", "node-1", "its container csi-provisioner waits (CrashLoopBackOff)"},
	{"capacity older than the group", func(f *facts) {
		f.answers[1].page.Classes[0].Offers[0].Largest = 5 * GiB
	}, "capacity", "node-2", "a maximum volume size of 80 GiB for the storage class local (object csisc-node-2local), but the node has 5 GiB"},
	{"capacity of a group that is gone", func(f *facts) {
		page := &f.answers[1].page
		page.Classes[0].Offers, page.Groups[0].Name, page.Volumes[0].Group = nil, "vg-renamed", "vg-renamed"
		page.Classes[1].Offers[0].Group = "vg-renamed"
	}, "capacity", "node-2", "a maximum volume size of 80 GiB for the storage class local (object csisc-node-2local), but the node has 0 B"},
	{"pods directory of the kubelet is a link", func(f *facts) {
		f.answers[1].page.Checks.Kubelet.Used, f.answers[1].page.Checks.Kubelet.PodsLink = false, "/data/pods"
	}, "mount propagation", "node-2", "/var/lib/kubelet/pods is a symbolic link to /data/pods"},
	{"degraded volume", func(f *facts) {
		f.answers[0].page.Conditions = []report.Condition{{Type: "VolumeDegraded", Group: "vg-data", Volume: vg1 + "/pvc-1", Text: "1 of its 2 legs have failed"}}
	}, "conditions", "node-1, volume vg-data/pvc-1 (claim shop/data-db-0)", "VolumeDegraded: 1 of its 2 legs have failed"},
	{"disk with two volumes and a snapshot is missing", func(f *facts) {
		page := &f.answers[0].page
		second := page.Volumes[0]
		second.ID, second.LV, second.Claim = vg1+"/pvc-9", "pvc-9", "shop/data-db-9"
		page.Volumes = append(page.Volumes, second)
		page.Groups[0].Problem = "a physical volume is missing"
		page.Groups[0].PVs = []report.PV{{UUID: "ok", Device: "/dev/sda"}, {UUID: "gone", Missing: true, Disk: &report.Disk{Path: "/dev/sdb", Model: "X9", Serial: "S1", Slot: "4"}}}
		page.Classes[0].Offers[0].Obstacle, page.Classes[1].Offers[0].Obstacle = page.Groups[0].Problem, page.Groups[0].Problem
		page.Conditions = []report.Condition{
			{Type: "PhysicalVolumeMissing", Group: "vg-data", Text: "volume group vg-data has a missing physical volume"},
			{Type: "VolumeDataMissing", Group: "vg-data", Volume: vg1 + "/pvc-1", Text: "a part of its data is missing"},
			{Type: "VolumeDegraded", Group: "vg-data", Volume: vg1 + "/pvc-9", Text: "1 of 2 legs is missing"},
		}
	}, "conditions", "node-1, volume group vg-data", "has a missing physical volume. Missing: X9, serial S1, last /dev/sdb, slot 4. Affected volumes: VolumeDataMissing: vg-data/pvc-1 (claim shop/data-db-0); VolumeDegraded: vg-data/pvc-9 (claim shop/data-db-9)"},
	{"disk that was a whole group is gone", func(f *facts) {
		loseGroup(&f.answers[0].page)
		f.capacities = f.capacities[2:]
	}, "conditions", "node-1, volume group vg-data", "volume group vg-data is not on this node. Affected volumes: VolumeDataMissing: claim shop/data-db-0"},
	{"restored metadata", func(f *facts) {
		f.answers[0].page.Conditions = []report.Condition{{Type: "ThinPoolTransactionMismatch", Group: "vg-data", Pool: "nodelvm-thin", Text: "LVM's metadata has transaction_id = 5 for thin pool vg-data/nodelvm-thin, and the pool itself has 7"}}
	}, "conditions", "node-1, thin pool vg-data/nodelvm-thin", "has transaction_id = 5 for thin pool vg-data/nodelvm-thin, and the pool itself has 7"},
	{"thin pool that serves two classes is nearly full", func(f *facts) {
		f.classes = append(f.classes, class("thin-xfs", map[string]string{"volumeGroup": "vg-data", "layout": "thin"}))
		f.capacities = append(f.capacities, capacityOf("node-1", "thin-xfs", "70Gi"), capacityOf("node-2", "thin-xfs", "70Gi"))
		f.capacities[1].MaximumVolumeSize, f.capacities[4].MaximumVolumeSize = nil, nil
		page := &f.answers[0].page
		page.Classes[1].Offers = []report.Offer{{Group: "vg-data", Obstacle: "the thin pool vg-data/nodelvm-thin is nearly full"}}
		page.Classes = append(page.Classes, report.Class{Name: "thin-xfs", Offers: page.Classes[1].Offers})
		f.answers[1].page.Classes = append(f.answers[1].page.Classes, report.Class{Name: "thin-xfs", Offers: f.answers[1].page.Classes[1].Offers})
		page.Conditions = []report.Condition{{Type: "ThinPoolNearlyFull", Group: "vg-data", Pool: "nodelvm-thin", Text: "nearly full"}}
	}, "conditions", "node-1, thin pool vg-data/nodelvm-thin", "ThinPoolNearlyFull: nearly full"},
	{"obstacle of two classes", func(f *facts) {
		f.capacities[0].MaximumVolumeSize, f.capacities[1].MaximumVolumeSize = nil, nil
		classes := f.answers[0].page.Classes
		classes[0].Offers[0], classes[1].Offers[0] = report.Offer{Group: "vg-data", Obstacle: "no disk is free"}, report.Offer{Group: "vg-data", Obstacle: "no disk is free"}
	}, "groups of classes", "node-1", "no capacity for StorageClasses local, thin: no disk is free"},
	{"tag of two classes that no group has", func(f *facts) {
		for _, name := range []string{"archive", "cold"} {
			f.classes = append(f.classes, class(name, map[string]string{"volumeGroup": "@slow"}))
			for i := range f.answers {
				f.answers[i].page.Classes = append(f.answers[i].page.Classes, report.Class{Name: name})
			}
		}
	}, "groups of classes", "StorageClasses archive, cold", `none of the 2 nodes that report their groups has a volume group with the LVM tag "slow"`},
	{"declared group that cannot be created", func(f *facts) {
		f.classes = append(f.classes, class("archive", map[string]string{"volumeGroup": "vg-slow"}))
		for i := range f.answers {
			f.answers[i].page.Classes = append(f.answers[i].page.Classes, report.Class{Name: "archive"})
		}
		f.answers[0].page.Conditions = []report.Condition{{Type: "VolumeGroupSetupFailed", Group: "vg-slow", Text: "/dev/sdb is not blank"}}
	}, "conditions", "node-1, volume group vg-slow", "/dev/sdb is not blank"},
	{"full file system", func(f *facts) {
		f.answers[0].page.Conditions = []report.Condition{{Type: "FileSystemFull", Group: "vg-data", Volume: vg1 + "/pvc-1", Text: "0 B of 10 GiB are available"}}
	}, "conditions", "node-1, volume vg-data/pvc-1 (claim shop/data-db-0)", "FileSystemFull: 0 B of 10 GiB"},
	{"declarations that are wrong", func(f *facts) {
		f.answers[0].page.Conditions = []report.Condition{{Type: "VolumeGroupSetupFailed", Text: "cannot create or extend the declared volume groups: paths has no value"}}
	}, "conditions", "node-1", "cannot create or extend the declared volume groups"},
	{"damaged tags", func(f *facts) { f.answers[0].page.Damaged = []string{"vg-data/x: it has two nodelvm.v tags"} }, "invalid tags", "node-1", "two nodelvm.v tags"},
	{"unreadable disk", func(f *facts) { f.answers[0].page.Unread = []string{"/dev/sdc does not answer"} }, "disks", "node-1", "/dev/sdc does not answer"},
	{"a device of unknown make", func(f *facts) { f.answers[0].page.Skipped = []string{"/dev/nbd0 is not searched for volume groups"} }, "disks", "node-1", "/dev/nbd0 is not searched"},
	{"a disk that is not accepted", func(f *facts) {
		f.answers[0].page.Unaccepted = []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-x", Identity: "WWID naa.1", Reason: "it may be foreign"}}
		f.answers[0].page.Conditions = []report.Condition{{Type: "PhysicalVolumeNotAccepted", Text: "the same"}}
	}, "disks", "node-1", "ignores /dev/sdx with the physical volume pv-x (WWID naa.1): it may be foreign"},
	{"a tenant's group that the node has activated", func(f *facts) { f.answers[0].page.OnVolumes = []string{"the node has activated dm-9"} }, "disks", "node-1", "the node has activated dm-9"},
	{"a group that the node activates", func(f *facts) { f.answers[0].page.Groups[0].AutoActivation = true }, "volume groups", "node-1, volume group vg-data", "the host activates its volumes at boot"},
	{"driver pod that the scheduler does not place", func(f *facts) {
		f.drivers[1].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 Insufficient memory"}}}
	}, "daemonset", "node-2", "the driver's pod nodelvm-node-2 is not ready: Unschedulable 1 Insufficient memory"},
	{"volumes that a node brought back", returned, "orphans", "node-1",
		"volumes or snapshots of this cluster are on its disks, and no claim uses them: 1 unreferenced, 1 abandoned, 4 GiB in total"},
	{"key that is not text", func(f *facts) {
		f.keyFaults = []keyFault{{secret: "shop/data-db-0-key", claim: "shop/data-db-0", what: "it is not text", fix: "replace it"}}
	}, "key Secrets", "Secret shop/data-db-0-key", "the encrypted volume of claim shop/data-db-0 needs its key, and it is not text"},
	{"snapshots without a quota", func(f *facts) { manySnapshots(f) },
		"quotas", "namespace shop", "its 25 snapshots on node node-2 count as 100 GiB in thin pool vg-data/nodelvm-thin, more than half of the 178 GiB that the pool can provision, and no ResourceQuota limits their number"},
	{"claims without a quota", func(f *facts) { manyClaims(f) },
		"quotas", "namespace shop", "its 151 volumes in volume group vg-data of node node-1 take most of what is used of the group's metadata area"},
	{"metadata differs", func(f *facts) { f.answers[0].page.MetadataDifference = "seqno" }, "disks", "node-1", "differs from LVM's report, so it changes nothing"},
}

// expandedClaim is the claim of the sound cluster's volume, of 10 GiB.
func expandedClaim(request string) corev1.PersistentVolumeClaim {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-db-0", UID: "data-db-0"},
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local"), VolumeName: "pvc-1", Resources: corev1.VolumeResourceRequirements{Requests: size(request)}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size("10Gi")}}
}

// changes gives the cluster a claim that asks for the attributes class gold.
func changes(f *facts, target string, state corev1.PersistentVolumeClaimModifyVolumeStatus, failure string) {
	claim := expandedClaim("10Gi")
	claim.Spec.VolumeAttributesClassName = ptr.To("gold")
	if state != "" {
		claim.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: state, TargetVolumeAttributesClassName: target}
	}
	if failure != "" {
		claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimVolumeModifyVolumeError, Status: corev1.ConditionTrue, Message: failure}}
	}
	f.claims = []corev1.PersistentVolumeClaim{claim}
}

// moves gives the cluster a claim whose volume moves, and whose status is that old.
func moves(f *facts, phase string, old time.Duration) {
	claim := expandedClaim("10Gi")
	claim.Annotations = map[string]string{api.AnnotationMoveTo: "node-2", api.AnnotationMoveStatus: fmt.Sprintf(`{"phase": %q, "from": "node-1", "to": "node-2", "message": "delete pod db-0", "time": %q}`, phase, now.Add(-old).UTC().Format(time.RFC3339Nano))}
	f.claims = []corev1.PersistentVolumeClaim{claim}
	f.volumes[0].Annotations = map[string]string{api.AnnotationMovingTo: "node-2", api.AnnotationMoveRecord: "{}"}
}

// TestDoctorOfDisabledMoves: a move under way neither goes on nor can be cancelled while the drivers run without moves.
func TestDoctorOfDisabledMoves(t *testing.T) {
	for args, want := range map[string]string{"": "set move.enabled to true in the chart's values", "--move=": "set move.enabled to true", "--move=:9812": "or cancel the move"} {
		f := sound()
		moves(f, api.MoveCopying, 20*time.Minute)
		f.container(driverContainer).Args = []string{"serve", args}
		i := slices.IndexFunc(examine(f).Findings, func(x finding) bool { return x.Check == "moves" })
		if i < 0 || !strings.Contains(examine(f).Findings[i].Fix, want) {
			t.Errorf("%q: %+v", args, examine(f).Findings)
		}
	}
}

// TestDoctorLeavesChangesAlone: a move that goes on is no fault, nor is an attributes class that the volume gets after it.
func TestDoctorLeavesChangesAlone(t *testing.T) {
	for name, plant := range map[string]func(*facts){
		"a change under way": func(f *facts) { changes(f, "gold", corev1.PersistentVolumeClaimModifyVolumeInProgress, "") },
		"a class that is wanted no more": func(f *facts) {
			changes(f, "gold", corev1.PersistentVolumeClaimModifyVolumeInfeasible, "no")
			f.claims[0].Spec.VolumeAttributesClassName = nil
		},
		"a move that goes on": func(f *facts) {
			moves(f, api.MoveCopying, time.Minute)
			f.claims[0].Spec.VolumeAttributesClassName = ptr.To("gold")
		},
		"a wish for a claim without a volume": func(f *facts) {
			moves(f, api.MoveWaiting, time.Hour)
			f.claims[0].Spec.VolumeName, f.claims[0].Status.Phase = "", corev1.ClaimPending
		},
		"a wish for another driver's volume": func(f *facts) {
			moves(f, api.MoveWaiting, time.Hour)
			f.claims[0].Spec.VolumeName = "other"
		},
		"a move that has ended": func(f *facts) {
			moves(f, api.MoveMoved, time.Hour)
			f.claims[0].Annotations[api.AnnotationMoveTo], f.volumes[0].Annotations = "node-1", nil
		},
	} {
		f := sound()
		plant(f)
		if found := examine(f).Findings; len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// unscheduled is a pod that the scheduler cannot place.
func unscheduled(claim, name string) corev1.Pod {
	pod := userOf(claim, name)
	pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 Insufficient cpu."}}
	return pod
}

func warning(reason, message string, seconds int) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))}
}

func TestDoctorHealthyCluster(t *testing.T) {
	if d := examine(sound()); len(d.Findings) > 0 || len(d.Unread) > 0 || d.Nodes != 2 {
		t.Errorf("in a sound cluster: %+v", d)
	}
	quiet := sound() // doctor ignores groups that the driver does not use
	quiet.answers[0].page.Groups = append(quiet.answers[0].page.Groups, report.Group{Name: "vg-root", UUID: "r", Problem: "exported", MetadataSize: 100,
		Pools: []report.Pool{{Name: "pool00", State: report.PoolFull}}})
	quiet.snapshotAPI, quiet.controllers[0].Spec.Template.Spec.Containers[0].Args = false, nil
	if d := examine(quiet); len(d.Findings) > 0 {
		t.Errorf("of other people's groups: %+v", d.Findings)
	}
}

func TestDoctorFaults(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			f := sound()
			fault.plant(f)
			found := examine(f).Findings
			if len(found) != 1 {
				t.Fatalf("%d findings: %+v", len(found), found)
			}
			if x := found[0]; x.Check != fault.check || x.Where != fault.where || !strings.Contains(x.What, fault.says) || x.Fix == "" {
				t.Errorf("found %+v", x)
			}
		})
	}
}

// TestDoctorCopyOfADisk: the node refuses to accept a second device with a physical volume of its groups, so doctor does not print that command.
func TestDoctorCopyOfADisk(t *testing.T) {
	for original, want := range map[string]string{"": "nodelvm disks accept /dev/sdx", "/dev/sda": "volume group vg-data uses this physical volume on /dev/sda"} {
		f := sound()
		f.answers[0].page.Groups[0].PVs = []report.PV{{UUID: "pv-x", Device: original, Missing: original == ""}}
		f.answers[0].page.Unaccepted = []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-x", Identity: "WWID naa.1", Reason: "it may be foreign"}}
		if found := examine(f).Findings; len(found) != 1 || !strings.Contains(found[0].Fix, want) || strings.Contains(found[0].Fix, "disks accept") != (original == "") {
			t.Errorf("with the physical volume on %q: found %+v", original, found)
		}
	}
}

// TestDoctorRenamedAndFull: a condition of a volume does not hide that its name was changed.
func TestDoctorRenamedAndFull(t *testing.T) {
	f := sound()
	f.answers[0].page.Volumes[0].LV = "mine"
	f.answers[0].page.Conditions = []report.Condition{{Type: "FileSystemFull", Group: "vg-data", Volume: vg1 + "/pvc-1", Text: "0 B are available"}}
	var found []string
	for _, x := range examine(f).Findings {
		found = append(found, x.Check)
	}
	if !slices.Equal(found, []string{"conditions", "lost volumes"}) {
		t.Errorf("found %q", found)
	}
}

// TestDoctorUnreadContents: what the user may not read is not absent.
func TestDoctorUnreadContents(t *testing.T) {
	f := sound()
	f.snapshots, f.contents, f.unreadable = []namespaceSnapshot{waitingSnapshot("snap-1")}, nil, map[string]bool{theContents: true}
	found := examine(f).Findings
	if len(found) != 1 || !strings.Contains(found[0].What, "why is unknown, because its VolumeSnapshotContent could not be read") {
		t.Errorf("found %+v", found)
	}
}

// TestDoctorUnreadableObjects: doctor does not report unreadable objects as absent.
func TestDoctorUnreadableObjects(t *testing.T) {
	f := sound()
	f.driver, f.daemonSet, f.csiNodes, f.capacities = nil, nil, nil, nil
	if found := examine(f).Findings; len(found) < 4 {
		t.Fatalf("without any of these objects only %+v is found", found)
	}
	var told bytes.Buffer
	if err := (&diagnosis{Unread: []string{"CSINodes: forbidden"}}).write(&told, 0); err != nil || !strings.Contains(told.String(), "nothing is wrong in what could be checked") {
		t.Errorf("%v: %s", err, &told)
	}
	f.unreadable = map[string]bool{theDriver: true, theDaemonSets: true, theCSINodes: true, theCapacities: true}
	if found := examine(f).Findings; len(found) > 0 {
		t.Errorf("of what could not be read: %+v", found)
	}
}

// TestDoctorDoesNotMissAGroupOfASilentNode: the node that does not answer may have the group, and needs no other one.
func TestDoctorDoesNotMissAGroupOfASilentNode(t *testing.T) {
	f := sound()
	f.classes = append(f.classes, class("big", map[string]string{"volumeGroup": "vg-big"}))
	f.answers[0].page.Classes = append(f.answers[0].page.Classes, report.Class{Name: "big"})
	silence(f)
	i := slices.IndexFunc(examine(f).Findings, func(x finding) bool { return x.Check == "groups of classes" })
	if i < 0 {
		t.Fatal("nothing is reported")
	}
	x := examine(f).Findings[i]
	if want := `the only node that reports its groups does not have the volume group "vg-big"; whether node-2 has it is unknown`; x.What != want || !strings.HasPrefix(x.Fix, "first find out why node-2 reports nothing") {
		t.Errorf("%+v, want %q", x, want)
	}
}

// TestDoctorNamesEachClass: a finding about several classes names all.
func TestDoctorNamesEachClass(t *testing.T) {
	f := sound()
	f.classes = append(f.classes, class("thin-xfs", map[string]string{"volumeGroup": "@fast", "layout": "thin"}))
	f.answers[1].page.Checks.Modules[1].State = report.ModuleMissing
	f.answers[1].page.Groups[0].Problem = "exported"
	var all string
	for _, x := range examine(f).Findings {
		all += x.What + " " + x.Fix + "\n"
	}
	for _, want := range []string{"which StorageClasses thin, thin-xfs need", "StorageClasses local, thin are served from it"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestDoctorEachCheckCanFail: faults has a fault for each check.
func TestDoctorEachCheckCanFail(t *testing.T) {
	for _, c := range checks {
		if !slices.ContainsFunc(faults, func(f fault) bool { return f.check == c.name }) {
			t.Errorf("no fault is planted for the check %q", c.name)
		}
	}
}

// TestDoctorIgnoresTransientFaults: doctor reports a transient finding only if both runs have it.
func TestDoctorIgnoresTransientFaults(t *testing.T) {
	lock := func(group string) finding { return finding{Check: "locks", Where: group, transient: true} }
	lasts := finding{Check: "rights", Where: "x"}
	first := &diagnosis{Findings: []finding{lock("a"), lock("b")}}
	second := &diagnosis{Findings: []finding{lock("b"), lock("c"), lasts}}
	if got := lasting(first, second).Findings; len(got) != 2 || got[0] != lock("b") || got[1] != lasts {
		t.Errorf("lasting: %+v", got)
	}
}

func TestDoctorWrites(t *testing.T) {
	f := sound()
	for _, i := range []int{0, 3, 6} {
		faults[i].plant(f)
	}
	f.unread = []string{"the rights of the driver's account: forbidden"}
	var narrow, wide bytes.Buffer
	d := examine(f)
	must(t, errors.Join(d.write(&narrow, 60), d.write(&wide, 0)))
	golden(t, "doctor.txt", narrow.Bytes())
	for line := range strings.Lines(narrow.String()) {
		if len([]rune(strings.TrimRight(line, "\n"))) > 60 {
			t.Errorf("too wide: %q", line)
		}
	}
	if strings.Count(wide.String(), "\n") != 3*3+2 {
		t.Errorf("without a terminal:\n%s", &wide)
	}
}

func TestMajorOf(t *testing.T) {
	for image, want := range map[string]int{"a/b:v6.3.0": 6, "host:5000/a/b:v10": 10, "a/b:5.0.1@sha256:ab": 5} {
		if got, ok := majorOf(image); !ok || got != want {
			t.Errorf("%s: %d, %v", image, got, ok)
		}
	}
	for _, image := range []string{"a/b", "host:5000/a/b", "a/b:latest", "a/b@sha256:12"} {
		if got, ok := majorOf(image); ok {
			t.Errorf("%s: %d", image, got)
		}
	}
}

// golden compares output with a file of testdata; UPDATE=1 writes the file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if os.Getenv("UPDATE") != "" {
		must(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s\n(UPDATE=1 rewrites it)", name, got, want)
	}
}
