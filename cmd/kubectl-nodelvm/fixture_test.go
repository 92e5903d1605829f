package main

import (
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const (
	vg1     = "AAAAAA-0000-0000-0000-0000-0000-000001"
	vg2     = "BBBBBB-0000-0000-0000-0000-0000-000002"
	ours    = "7e57c1a5-0000-4000-8000-000000000001"
	another = "0ddba11e-0000-4000-8000-000000000002"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sound returns the facts of a cluster without faults: two nodes, a linear and a thin class, two volumes, a snapshot.
func sound() *facts {
	f := &facts{
		now:         now,
		driver:      &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false), StorageCapacity: ptr.To(true)}},
		daemonSet:   soundDaemonSet(),
		snapshotAPI: true,
		controllers: []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "snapshot-controller"},
			Spec: appsv1.DeploymentSpec{Template: template(corev1.Container{Name: "c", Image: "registry.k8s.io/sig-storage/snapshot-controller:v8.7.0",
				Args: []string{"--leader-election=true", "--enable-distributed-snapshotting=true"}})}}},
		classes: []storagev1.StorageClass{
			class("local", map[string]string{"volumeGroup": "vg-data"}),
			class("thin", map[string]string{"volumeGroup": "@fast", "layout": "thin"}),
		},
		volumes:  []corev1.PersistentVolume{volume("pvc-1", "node-1", vg1, "shop/data-db-0", "10Gi"), volume("pvc-2", "node-2", vg2, "shop/data-db-1", "4Gi")},
		contents: []content{snapshot("snap-1", "node-2", vg2)},
	}
	for _, name := range []string{"node-1", "node-2"} {
		f.drivers = append(f.drivers, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system", Name: "nodelvm-" + name},
			Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}})
		f.csiNodes = append(f.csiNodes, storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: api.DriverName, NodeID: name, TopologyKeys: []string{api.TopologyKey}}}}})
		f.capacities = append(f.capacities, capacityOf(name, "local", "80Gi"), capacityOf(name, "thin", "70Gi"))
	}
	f.answers = []answer{
		{node: "node-1", pod: "nodelvm-node-1", page: soundPage("node-1", vg1, report.Volume{ID: vg1 + "/pvc-1", UUID: "u1", Group: "vg-data", LV: "pvc-1", Name: "pvc-1",
			Claim: "shop/data-db-0", Cluster: ours, State: string(lvm.StateReady), Layout: "linear", Size: 10 * GiB, Created: now.Add(-time.Hour)})},
		{node: "node-2", pod: "nodelvm-node-2", page: soundPage("node-2", vg2, report.Volume{ID: vg2 + "/pvc-2", UUID: "u2", Group: "vg-data", LV: "pvc-2", Name: "pvc-2",
			Claim: "shop/data-db-1", Cluster: ours, State: string(lvm.StateReady), Layout: string(lvm.LayoutThin), Pool: lvm.DefaultPool, Size: 4 * GiB, Encryption: "luks2",
			Used: ptr.To(GiB), Created: now.Add(-time.Hour)})},
	}
	f.answers[1].page.Snapshots = []report.Snapshot{{ID: vg2 + "/snap-1", Group: "vg-data", LV: "snap-1", Name: "snapshot-1", Cluster: ours,
		State: string(lvm.StateReady), Source: vg2 + "/pvc-2", Size: 4 * GiB, Created: now.Add(-time.Hour)}}
	return f
}

// loseGroup takes the only group, with its one volume, off a node, as its driver reports it.
func loseGroup(page *report.Node) {
	g, v := page.Groups[0], page.Volumes[0]
	page.Groups, page.Volumes = nil, nil
	page.LostDisks = []report.LostDisk{{PV: "pv-a", Group: g.Name, GroupUUID: g.UUID, Disk: report.Disk{Path: "/dev/sdb", Model: "DISK 9000", Seen: now}}}
	page.Conditions = []report.Condition{
		{Type: "PhysicalVolumeMissing", Group: g.Name, GroupUUID: g.UUID, Text: "volume group vg-data is not on this node"},
		{Type: "VolumeDataMissing", Group: g.Name, GroupUUID: g.UUID, Volume: v.ID, Claim: v.Claim, Text: "its volume group is not on its node"},
	}
	for i := range page.Classes {
		page.Classes[i].Offers = nil
	}
}

func soundDaemonSet() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system", Name: "nodelvm"},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 2},
		Spec: appsv1.DaemonSetSpec{Template: template(
			corev1.Container{Name: "nodelvm", Image: "ghcr.io/nodelvm/nodelvm:v0.1.0"},
			corev1.Container{Name: "csi-provisioner", Image: "registry.k8s.io/sig-storage/csi-provisioner:v6.4.0", Args: neededArgs["csi-provisioner"]},
			corev1.Container{Name: "csi-snapshotter", Image: "registry.k8s.io/sig-storage/csi-snapshotter:v8.7.0", Args: neededArgs["csi-snapshotter"]},
		)},
	}
}

func template(containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: "nodelvm", Containers: containers}}
}

func class(name string, parameters map[string]string) storagev1.StorageClass {
	return storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: api.DriverName, Parameters: parameters,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func capacityOf(node, class, largest string) storagev1.CSIStorageCapacity {
	return storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "csisc-" + node + class}, StorageClassName: class,
		NodeTopology:      &metav1.LabelSelector{MatchLabels: map[string]string{api.TopologyKey: node}},
		MaximumVolumeSize: ptr.To(resource.MustParse(largest))}
}

func volume(name, node, vg, claim, size string) corev1.PersistentVolume {
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: api.DriverName, VolumeHandle: vg + "/" + name}},
		ClaimRef:               &corev1.ObjectReference{Namespace: "shop", Name: claim[len("shop/"):]},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}},
	}}
	pv.Status.Phase = corev1.VolumeBound
	return pv
}

func snapshot(name, node, vg string) content {
	c := content{ObjectMeta: metav1.ObjectMeta{Name: "snapcontent-" + name, Labels: map[string]string{api.LabelManagedBy: node}}}
	c.Spec.Driver, c.Status.SnapshotHandle = api.DriverName, vg+"/"+name
	c.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: "shop", Name: name}
	return c
}

func soundPage(node string, vg lvm.VGUUID, v report.Volume) report.Node {
	return report.Node{
		Node: node, Version: "v0.1.0", Cluster: ours, Time: now, Comparison: &report.Comparison{Time: now.Add(-time.Minute)},
		Inventory: report.Inventory{
			Groups: []report.Group{{Name: "vg-data", UUID: vg, Tags: []string{"fast"}, Disks: 2, Size: 100 * GiB, Free: 80 * GiB,
				MetadataSize: 64 * MiB, MetadataFree: 63 * MiB, Pools: []report.Pool{{Name: lvm.DefaultPool, Size: 8 * GiB, Used: 2 * GiB,
					MetadataSize: 64 * MiB, MetadataUsed: MiB, Provisioned: 8 * GiB, Zero: true, State: report.PoolWorks}}}},
			Volumes: []report.Volume{v},
		},
		Classes: []report.Class{
			{Name: "local", Offers: []report.Offer{{Group: "vg-data", Available: 80 * GiB, Largest: 80 * GiB}}},
			{Name: "thin", Offers: []report.Offer{{Group: "vg-data", Available: 70 * GiB, Largest: 70 * GiB}}},
		},
		Checks: report.Checks{
			Kernel: "6.1.0-1-amd64",
			Modules: []report.Module{{Name: "dm-mod", State: report.ModuleLoaded}, {Name: "dm-thin-pool", State: report.ModuleAvailable},
				{Name: "dm-raid", State: report.ModuleMissing}}, // no class needs it
			Kubelet:      report.KubeletDir{Path: "/var/lib/kubelet", Mount: "/var/lib/kubelet", Propagation: report.PropagationShared, Used: true},
			Registration: report.Registration{State: report.RegistrationDone},
		},
	}
}

// silence replaces the second node's answer by an error.
func silence(f *facts) {
	f.answers[1] = answer{node: "node-2", err: errors.New("the driver (pod nodelvm-node-2) has not answered within 10s")}
}

// Sizes of the fixtures.
const (
	MiB = lvm.MiB
	GiB = lvm.GiB
)

// labelled is a node on which the kubelet has registered the driver.
func labelled(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{api.TopologyKey: name}}
}
