package measure

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// simulatedNodes are the objects of many nodes that do not exist, and of their volumes.
type simulatedNodes struct{ Scale }

const (
	simulatedLabel  = "nodelvm-test=simulated"
	parallelWriters = 32
)

func simulatedMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"nodelvm-test": "simulated"}}
}

// write writes the objects, by many hands.
func (c *simulatedNodes) write(ctx context.Context, env *scenario.Environment) error {
	client, err := env.FastClient()
	if err != nil {
		return err
	}
	if err := forEachParallel(ctx, c.Nodes, func(ctx context.Context, i int) error { return writeNode(ctx, client, i) }); err != nil {
		return err
	}
	return forEachParallel(ctx, c.Volumes, func(ctx context.Context, i int) error { return writeVolume(ctx, client, i, i%c.Nodes) })
}

// forEachParallel does n things, some at a time, and stops at the first that fails.
func forEachParallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallelWriters)
	for i := range n {
		all.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, i)
		})
	}
	return all.Wait()
}

func simulatedNode(i int) string { return fmt.Sprintf("simulated-%d", i) }

func writeNode(ctx context.Context, client kubernetes.Interface, i int) error {
	name := simulatedNode(i)
	meta := simulatedMeta(name)
	meta.Labels[cluster.TopologyKey] = name
	_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: meta, Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "simulated", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: simulatedMeta(name), Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: cluster.Driver, NodeID: name, TopologyKeys: []string{cluster.TopologyKey}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, class := range []string{scenario.GrowingClass, scenario.ThinClass} {
		meta := simulatedMeta(name + "-" + class)
		meta.Labels["csi.storage.k8s.io/drivername"] = cluster.Driver
		meta.Labels["csi.storage.k8s.io/managed-by"] = "external-provisioner-" + name
		room := resource.MustParse("1Ti")
		_, err := client.StorageV1().CSIStorageCapacities(cluster.DriverNamespace).Create(ctx, &storagev1.CSIStorageCapacity{
			ObjectMeta: meta, StorageClassName: class, Capacity: &room, MaximumVolumeSize: &room,
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{cluster.TopologyKey: name}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeVolume writes a claim and its volume, and says that they are bound to each other: Kubernetes' own controller would write
// that at 20 requests a second, and come to nothing else for half an hour.
func writeVolume(ctx context.Context, client kubernetes.Interface, i, node int) error {
	name, class := fmt.Sprintf("simulated-%d", i), scenario.GrowingClass
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	meta := simulatedMeta(name)
	meta.Annotations = map[string]string{
		scenario.AnnSelectedNode: simulatedNode(node), "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		"volume.kubernetes.io/storage-provisioner": cluster.Driver, "volume.beta.kubernetes.io/storage-provisioner": cluster.Driver,
	}
	claims := client.CoreV1().PersistentVolumeClaims(cluster.Namespace)
	claim, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: modes, VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	volume := simulatedMeta(name)
	volume.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": cluster.Driver}
	_, err = client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ObjectMeta: volume, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: modes, Capacity: size, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: cluster.Namespace, Name: name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: cluster.Driver, VolumeHandle: "simulated/" + name}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: cluster.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{simulatedNode(node)}}},
		}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, []byte(`{"status": {"phase": "Bound"}}`), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	_, err = claims.Patch(ctx, name, types.MergePatchType,
		[]byte(`{"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}}`), metav1.PatchOptions{}, "status")
	return err
}

// remove deletes all of it, real volumes too.
func (c *simulatedNodes) remove(ctx context.Context, env *scenario.Environment) error {
	client, err := env.FastClient()
	if err != nil {
		return err
	}
	if err := forEachParallel(ctx, c.Volumes, func(ctx context.Context, i int) error { return removeVolume(ctx, client, i) }); err != nil {
		return err
	}
	capacities := client.StorageV1().CSIStorageCapacities(cluster.DriverNamespace)
	csiNodes, nodes := client.StorageV1().CSINodes(), client.CoreV1().Nodes()
	err = errors.Join(
		deleteInParts(ctx, capacities.List, capacities.DeleteCollection),
		deleteInParts(ctx, csiNodes.List, csiNodes.DeleteCollection),
		deleteInParts(ctx, nodes.List, nodes.DeleteCollection))
	if err != nil {
		return err
	}
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}

// removeVolume deletes a claim and its volume, and removes their finalizers: Kubernetes' own controller would remove those at 20
// requests a second.
func removeVolume(ctx context.Context, client kubernetes.Interface, i int) error {
	name, noFinalizers := fmt.Sprintf("simulated-%d", i), []byte(`{"metadata": {"finalizers": null}}`)
	claims, volumes := client.CoreV1().PersistentVolumeClaims(cluster.Namespace), client.CoreV1().PersistentVolumes()
	if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if _, err := claims.Patch(ctx, name, types.MergePatchType, noFinalizers, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := volumes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if _, err := volumes.Patch(ctx, name, types.MergePatchType, noFinalizers, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// deleteInParts deletes the simulated objects of one kind, which have no finalizers. The API server ends a request after a
// minute; a limit makes it delete only as many objects as it can in that time.
func deleteInParts[L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error),
	deleteCollection func(context.Context, metav1.DeleteOptions, metav1.ListOptions) error,
) error {
	for {
		left, err := list(ctx, metav1.ListOptions{LabelSelector: simulatedLabel, Limit: 1})
		if err != nil || meta.LenList(left) == 0 {
			return err
		}
		if err := deleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: simulatedLabel, Limit: 500}); err != nil {
			return err
		}
	}
}
