package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// whyFacts is what why reads: the objects of one namespace, cluster-scoped objects, and the nodes' answers.
type whyFacts struct {
	namespace string
	claims    []corev1.PersistentVolumeClaim // of the namespace
	pods      []corev1.Pod                   // of the namespace
	snapshots []namespaceSnapshot            // of the namespace
	contents  []content
	volumes   []corev1.PersistentVolume
	classes   []storagev1.StorageClass // of all drivers
	nodes     []corev1.Node
	answers   []answer
}

func (c *cluster) gatherWhy(ctx context.Context, namespace string) (*whyFacts, error) {
	w, err := c.claimFacts(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if w.contents, _, err = c.contents(ctx); err != nil {
		return nil, err
	}
	if w.volumes, err = c.volumes(ctx); err != nil {
		return nil, err
	}
	var classes storagev1.StorageClassList
	if err := c.get(ctx, "/apis/storage.k8s.io/v1/storageclasses", &classes); err != nil {
		return nil, err
	}
	w.classes = classes.Items
	drivers, err := c.drivers(ctx)
	if err != nil {
		return nil, err
	}
	ours := slices.DeleteFunc(slices.Clone(w.classes), func(class storagev1.StorageClass) bool { return class.Provisioner != api.DriverName })
	w.answers = c.answers(ctx, drivers, ours)
	return w, nil
}

// claimFacts reads the nodes, and the claims, pods and snapshots of a namespace, or of all.
func (c *cluster) claimFacts(ctx context.Context, namespace string) (*whyFacts, error) {
	w := &whyFacts{namespace: namespace}
	var claims corev1.PersistentVolumeClaimList
	if err := c.api.Get().NamespaceIfScoped(namespace, namespace != "").Resource("persistentvolumeclaims").Do(ctx).Into(&claims); err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := c.get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return nil, err
	}
	w.claims, w.nodes = claims.Items, nodes.Items
	var err error
	if w.pods, err = c.pods(ctx, namespace); err != nil {
		return nil, err
	}
	w.snapshots, err = c.namespaceSnapshots(ctx, namespace)
	return w, err
}

// named returns the claim with the name, or the claims of the pod with the name that have no volume.
func (w *whyFacts) named(name string) ([]corev1.PersistentVolumeClaim, error) {
	kind, short, cut := strings.Cut(name, "/")
	if !cut {
		kind, short = "", name
	}
	if kind == "" || slices.Contains([]string{"pvc", "persistentvolumeclaim", "claim"}, kind) {
		if claim := w.claim(short); claim != nil {
			return []corev1.PersistentVolumeClaim{*claim}, nil
		}
	}
	i := slices.IndexFunc(w.pods, func(pod corev1.Pod) bool { return pod.Name == short && (kind == "" || kind == "pod" || kind == "po") })
	if i < 0 {
		return nil, fmt.Errorf("namespace %s has neither a claim nor a pod %q; choose the namespace with -n", w.namespace, name)
	}
	return w.claimsOfPod(&w.pods[i])
}

// claimsOfPod returns the claims of a pod that have no volume.
func (w *whyFacts) claimsOfPod(pod *corev1.Pod) ([]corev1.PersistentVolumeClaim, error) {
	var waiting []corev1.PersistentVolumeClaim
	names := pending.ClaimNames(pod)
	if len(names) == 0 {
		return nil, fmt.Errorf("pod %s uses no claim", pod.Name)
	}
	for _, name := range names {
		claim := w.claim(name)
		if claim == nil {
			return nil, fmt.Errorf("pod %s uses claim %s, which does not exist: create it, or see the events of the StatefulSet (a ResourceQuota may refuse it)", pod.Name, name)
		}
		if claim.Status.Phase != corev1.ClaimBound {
			waiting = append(waiting, *claim)
		}
	}
	if len(waiting) == 0 {
		return nil, errors.New("all claims of pod " + pod.Name + " have their volumes: see kubectl -n " + pod.Namespace + " describe pod " + pod.Name)
	}
	return waiting, nil
}

func (w *whyFacts) claim(name string) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(w.claims, func(claim corev1.PersistentVolumeClaim) bool { return claim.Name == name })
	if i < 0 {
		return nil
	}
	return &w.claims[i]
}

// nodeOfClaim returns the node of a claim's volume, or "" if the claim has no volume or another driver's.
func (w *whyFacts) nodeOfClaim(claim *corev1.PersistentVolumeClaim) string {
	i := slices.IndexFunc(w.volumes, func(pv corev1.PersistentVolume) bool { return pv.Name == claim.Spec.VolumeName })
	if i < 0 {
		return ""
	}
	return pending.NodeOf(&w.volumes[i])
}

// facts returns the facts about one claim.
func (w *whyFacts) facts(claim corev1.PersistentVolumeClaim) pending.Facts {
	f := pending.Facts{Claim: claim, OtherVolumes: map[string]string{}, Source: w.source(&claim)}
	name := api.ClassOf(claim.Annotations, claim.Spec.StorageClassName)
	if i := slices.IndexFunc(w.classes, func(class storagev1.StorageClass) bool { return class.Name == name }); i >= 0 {
		f.Class = &w.classes[i]
	}
	for _, pod := range w.pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		names := pending.ClaimNames(&pod)
		if ended || !slices.Contains(names, claim.Name) {
			continue
		}
		f.Pods = append(f.Pods, pod)
		for _, name := range names {
			if other := w.claim(name); other != nil && w.nodeOfClaim(other) != "" {
				f.OtherVolumes[name] = w.nodeOfClaim(other)
			}
		}
	}
	for _, node := range w.nodes {
		f.Nodes = append(f.Nodes, w.node(node, f.Class))
	}
	return f
}

// node returns what the driver of a node reports about a class.
func (w *whyFacts) node(node corev1.Node, class *storagev1.StorageClass) pending.Node {
	n := pending.Node{Node: node, Silent: "nodelvm does not run there"}
	i := slices.IndexFunc(w.answers, func(a answer) bool { return a.node == node.Name })
	if i < 0 || class == nil {
		return n
	}
	a := w.answers[i]
	if n.Silent = a.gap(); a.err != nil || n.Silent != "" {
		return n
	}
	for _, c := range a.page.Classes {
		if c.Name == class.Name {
			n.Refused, n.Offers = c.Error, c.Offers
		}
	}
	n.Wiping = a.page.WipeBacklog
	return n
}

// source returns the snapshot or claim that a claim is restored or cloned from; nil if it has none, or one of another kind.
func (w *whyFacts) source(claim *corev1.PersistentVolumeClaim) *pending.Source {
	from := claim.Spec.DataSource
	if from == nil {
		return nil
	}
	s := &pending.Source{Kind: from.Kind, Name: from.Name, Missing: true}
	switch from.Kind {
	case "PersistentVolumeClaim":
		if other := w.claim(from.Name); other != nil {
			s.Missing, s.NotReady, s.Node = false, other.Status.Phase != corev1.ClaimBound, w.nodeOfClaim(other)
		}
	case "VolumeSnapshot":
		for _, snapshot := range w.snapshots {
			if snapshot.Name == from.Name {
				s.Missing, s.NotReady = false, snapshot.Status.Ready == nil || !*snapshot.Status.Ready
			}
		}
		for _, item := range w.contents {
			if item.Spec.VolumeSnapshotRef.Namespace == w.namespace && item.Spec.VolumeSnapshotRef.Name == from.Name {
				s.Node = item.Labels[api.LabelManagedBy]
			}
		}
	default:
		return nil
	}
	return s
}
