package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// moveFacts are the only input of the plans of moves. A user with rights in one namespace has its claims and pods. What such a user may not read
// is nil, and a sentence in unread says so.
type moveFacts struct {
	claims    []corev1.PersistentVolumeClaim // of the namespace, or of all.
	pods      []corev1.Pod                   // the same, those that have not ended.
	allPods   bool                           // pods has those of all namespaces.
	volumes   []corev1.PersistentVolume      // the driver's; nil: unknown.
	classes   []storagev1.StorageClass       // the driver's; nil: unknown.
	nodes     []corev1.Node                  // nil: unknown.
	csiNodes  []storagev1.CSINode            // nil: unknown.
	published []storagev1.CSIStorageCapacity // nil: unknown.
	snapshots []namespaceSnapshot            // of the namespace, or of all.
	contents  []content                      // nil: unknown.
	drivers   []corev1.Pod                   // nil: unknown.
	answers   []answer
	unread    []string
}

// moveFacts reads them. It fails only if the claims or pods of the namespace cannot be read. It asks the drivers of these nodes; nil: of all.
func (c *cluster) moveFacts(ctx context.Context, namespace string, ask []string) (*moveFacts, error) {
	f := &moveFacts{}
	var err error
	if f.claims, err = list[corev1.PersistentVolumeClaim](ctx, c.in(namespace, "persistentvolumeclaims")); err != nil {
		return nil, err
	}
	if err := c.readMovePods(ctx, f, namespace); err != nil {
		return nil, err
	}
	read := func(what string, err error) {
		if err != nil {
			f.unread = append(f.unread, what+": "+err.Error())
		}
	}
	f.volumes, err = known(c.volumes(ctx))
	read(theVolumes, err)
	classes, _, err := c.classes(ctx)
	f.classes, err = known(classes, err)
	read(theClasses, err)
	f.nodes, err = known(list[corev1.Node](ctx, c.all("/api/v1/nodes")))
	read("nodes", err)
	f.csiNodes, err = known(list[storagev1.CSINode](ctx, c.all("/apis/storage.k8s.io/v1/csinodes")))
	read(theCSINodes, err)
	f.published, err = known(list[storagev1.CSIStorageCapacity](ctx, c.all("/apis/storage.k8s.io/v1/csistoragecapacities")))
	read(theCapacities, err)
	f.snapshots, err = c.namespaceSnapshots(ctx, namespace)
	read("VolumeSnapshots", err)
	contents, _, err := c.contents(ctx)
	f.contents, err = known(contents, err)
	read("VolumeSnapshotContents", err)
	if f.drivers, err = known(c.drivers(ctx)); err == nil {
		asked := slices.DeleteFunc(slices.Clone(f.drivers), func(pod corev1.Pod) bool { return ask != nil && !slices.Contains(ask, pod.Spec.NodeName) })
		f.answers = c.answers(ctx, asked, f.classes)
	}
	read("the driver's pods", err)
	return f, nil
}

// known makes an empty list of one that was read: nil stands for one that was not.
func known[T any](list []T, err error) ([]T, error) {
	if err == nil && list == nil {
		list = []T{}
	}
	return list, err
}

// readMovePods reads the pods of all namespaces, whose rules count on a target, or if that is not allowed, those of the namespace.
func (c *cluster) readMovePods(ctx context.Context, f *moveFacts, namespace string) (err error) {
	f.pods, err = c.pods(ctx, "")
	f.allPods = err == nil
	if apierrors.IsForbidden(err) && namespace != "" {
		f.unread = append(f.unread, "pods of other namespaces: "+err.Error())
		f.pods, err = c.pods(ctx, namespace)
	}
	f.pods = slices.DeleteFunc(f.pods, func(pod corev1.Pod) bool { return hasEnded(&pod) })
	return err
}

func (f *moveFacts) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return find(f.claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Namespace == namespace && c.Name == name })
}

// volume returns the driver's volume that is bound to a claim; nil: it has none, or that is unknown.
func (f *moveFacts) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return find(f.volumes, func(pv *corev1.PersistentVolume) bool {
		return pv.Name == claim.Spec.VolumeName && pending.MayBind(pv, claim)
	})
}

// nodeOf returns the node of a claim's volume; "": unknown. Without the right to read PersistentVolumes it is that of a pod that runs with the claim,
// or what the claim says.
func (f *moveFacts) nodeOf(claim *corev1.PersistentVolumeClaim) string {
	if f.volumes != nil {
		return pending.NodeOfClaim(claim, f.volume(claim))
	}
	for _, pod := range f.users(claim) {
		if pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return claim.Annotations[api.AnnotationSelectedNode]
}

// isOurs reports whether a claim has a volume of this driver.
func (f *moveFacts) isOurs(claim *corev1.PersistentVolumeClaim) bool {
	if f.volumes != nil {
		return f.volume(claim) != nil
	}
	return claim.Spec.VolumeName != "" && api.ProvisionerOf(claim.Annotations) == api.DriverName
}

// users returns the pods that use a claim and have not ended.
func (f *moveFacts) users(claim *corev1.PersistentVolumeClaim) (pods []*corev1.Pod) {
	for i := range f.pods {
		if uses(&f.pods[i], claim) {
			pods = append(pods, &f.pods[i])
		}
	}
	return pods
}

func (f *moveFacts) class(name string) *storagev1.StorageClass {
	return find(f.classes, func(class *storagev1.StorageClass) bool { return class.Name == name })
}

func (f *moveFacts) node(name string) *corev1.Node {
	return find(f.nodes, func(n *corev1.Node) bool { return n.Name == name })
}

// sizeOf returns the size of a claim's volume, and how much of it a move copies: a thin volume's blocks, as its node reports them, else all.
func (f *moveFacts) sizeOf(claim *corev1.PersistentVolumeClaim) (size, copied lvm.Bytes) {
	quantity := claim.Status.Capacity[corev1.ResourceStorage]
	if pv := f.volume(claim); pv != nil {
		quantity = pv.Spec.Capacity[corev1.ResourceStorage]
		for i := range f.answers {
			if v := f.answers[i].volume(pv.Spec.CSI.VolumeHandle); v != nil && v.Used != nil {
				return lvm.Bytes(quantity.Value()), *v.Used
			}
		}
	}
	return lvm.Bytes(quantity.Value()), lvm.Bytes(quantity.Value())
}

// snapshotsOf returns the names of a claim's snapshots on a node. Those of which the node is unknown count.
func (f *moveFacts) snapshotsOf(claim *corev1.PersistentVolumeClaim, node string) (names []string) {
	for _, s := range f.snapshots {
		if s.Namespace != claim.Namespace || s.Spec.Source.Claim != claim.Name {
			continue
		}
		of := find(f.contents, func(c *content) bool { return c.name() == s.Namespace+"/"+s.Name })
		if f.contents != nil && of == nil || of != nil && of.Labels[api.LabelManagedBy] != "" && of.Labels[api.LabelManagedBy] != node {
			continue
		}
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// restores says where claims can be restored from snapshots that stay on a node, of volumes of a class.
func (f *moveFacts) restores(class, node string) string {
	if f.classes == nil {
		return fmt.Sprintf("Claims are restored from them on node %s alone, unless their class has %s", node, api.ParameterRestoreOnOtherNodes)
	}
	var anywhere []string
	for i := range f.classes {
		if c := &f.classes[i]; c.Parameters[api.ParameterRestoreOnOtherNodes] == "true" && c.Parameters[api.ParameterEncryption] == f.encryptionOf(class) {
			anywhere = append(anywhere, c.Name)
		}
	}
	if len(anywhere) == 0 {
		return fmt.Sprintf("Claims are restored from them on node %s alone: no such class has %s", node, api.ParameterRestoreOnOtherNodes)
	}
	slices.Sort(anywhere)
	return fmt.Sprintf("Claims of the class %s are restored from them on any node, others on node %s alone", strings.Join(anywhere, " or "), node)
}

// encryptionOf is what a class says of encryption; "": nothing, or the class is gone.
func (f *moveFacts) encryptionOf(class string) string {
	if c := f.class(class); c != nil {
		return c.Parameters[api.ParameterEncryption]
	}
	return ""
}

// formerCopy reports whether a node reports a former copy of a volume, which moved away.
func (a *answer) formerCopy(volume string) bool {
	return a.err == nil && slices.ContainsFunc(a.page.Volumes, func(v report.Volume) bool { return v.Name == volume && v.State == string(lvm.StateMoved) })
}

// The driver's flags by which it moves volumes, and that limit the rate.
const (
	moveFlag     = "--move="
	moveRateFlag = "--move-rate="
)

// movesVolumes reports whether the driver in a pod moves volumes, and the rate in bytes per second to which it is limited; 0: none.
func movesVolumes(pod *corev1.Pod) (moves bool, rate lvm.Bytes) {
	for _, container := range pod.Spec.Containers {
		if container.Name != driverContainer {
			continue
		}
		for _, arg := range container.Args {
			if address, is := strings.CutPrefix(arg, moveFlag); is && address != "" {
				moves = true
			}
			if text, is := strings.CutPrefix(arg, moveRateFlag); is {
				if quantity, err := resource.ParseQuantity(text); err == nil {
					rate = lvm.Bytes(quantity.Value())
				}
			}
		}
	}
	return moves, rate
}

// driverOn returns the driver's pod on a node; nil: there is none, or that is unknown.
func (f *moveFacts) driverOn(node string) *corev1.Pod {
	return find(f.drivers, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}

// defaultRate is what a copy is estimated with: a link of 1 Gbit/s. A driver with a lower limit copies at that.
const defaultRate = 100 * lvm.MiB

// readRate is how fast a source reads blocks that a thin volume has not allocated.
const readRate = 2 * lvm.GiB

// copyTime estimates the time for copies from a node. A driver's limit counts for all that is read.
func (f *moveFacts) copyTime(from string, size, copied lvm.Bytes) time.Duration {
	seconds := float64(copied)/float64(defaultRate) + float64(size-copied)/float64(readRate)
	if pod := f.driverOn(from); pod != nil {
		if _, limit := movesVolumes(pod); limit > 0 {
			seconds = max(seconds, float64(size)/float64(limit))
		}
	}
	return max(time.Second, time.Duration(seconds*float64(time.Second)).Round(time.Second))
}
