package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
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
	drivers   []corev1.Pod
	answers   []answer
	keyPolicy *keyPolicy
	events    map[types.UID][]corev1.Event // of some objects
	unread    []string                     // sentences: what the user may not read
	now       time.Time
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
	if w.keyPolicy, err = c.readKeyPolicy(ctx, ours); err != nil {
		w.unread = append(w.unread, "the admission policy "+restrictionPolicy+": "+err.Error())
	}
	w.drivers, w.answers = drivers, c.answers(ctx, drivers, ours)
	return w, nil
}

// claimFacts reads the nodes, and the claims, pods and snapshots of a namespace, or of all.
func (c *cluster) claimFacts(ctx context.Context, namespace string) (*whyFacts, error) {
	w := &whyFacts{namespace: namespace, now: time.Now()}
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

// asked is what why explains: claims, claims that do not exist, and pods.
type asked struct {
	claims  []corev1.PersistentVolumeClaim
	missing []pending.Answer
	pods    []corev1.Pod // whose claims have their volumes
}

// named returns what has the name: a claim, a pod, or both.
func (w *whyFacts) named(name string) (asked, error) {
	kind, short, cut := strings.Cut(name, "/")
	if !cut {
		kind, short = "", name
	}
	var a asked
	if claim := w.claim(short); claim != nil && slices.Contains([]string{"", "pvc", "persistentvolumeclaim", "claim"}, kind) {
		a.addClaim(w, claim)
	}
	i := slices.IndexFunc(w.pods, func(pod corev1.Pod) bool { return pod.Name == short && (kind == "" || kind == "pod" || kind == "po") })
	if i >= 0 {
		a.addPod(w, &w.pods[i])
	}
	if len(a.claims)+len(a.missing)+len(a.pods) == 0 {
		return a, fmt.Errorf("namespace %s has neither a claim nor a pod %q; choose the namespace with -n", w.namespace, name)
	}
	return a, nil
}

// addClaim adds a claim, and if it has its volume, the pods that use it and wait.
func (a *asked) addClaim(w *whyFacts, claim *corev1.PersistentVolumeClaim) {
	a.claims = append(a.claims, *claim)
	if claim.Status.Phase != corev1.ClaimBound {
		return
	}
	for i := range w.pods {
		if w.pods[i].Status.Phase == corev1.PodPending && pending.UsesClaim(&w.pods[i], claim.Name) {
			a.addPod(w, &w.pods[i])
		}
	}
}

// addPod adds the claims of a pod that have no volume, or the pod itself if all have theirs.
func (a *asked) addPod(w *whyFacts, pod *corev1.Pod) {
	all := true
	for _, name := range pending.ClaimNames(pod) {
		claim := w.claim(name)
		switch {
		case claim == nil:
			all = false
			a.missing = append(a.missing, pending.ExplainMissing(pod, name))
		case claim.Status.Phase != corev1.ClaimBound:
			all = false
			if !slices.ContainsFunc(a.claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == name }) {
				a.claims = append(a.claims, *claim)
			}
		}
	}
	if all && !slices.ContainsFunc(a.pods, func(p corev1.Pod) bool { return p.Name == pod.Name }) {
		a.pods = append(a.pods, *pod)
	}
}

// objects are what the events are read of.
func (a *asked) objects() (list []subject) {
	for _, claim := range a.claims {
		list = append(list, subject{claim.Namespace, claim.UID})
	}
	for _, pod := range a.pods {
		list = append(list, subject{pod.Namespace, pod.UID})
	}
	return list
}

// explain needs the events of the objects.
func (w *whyFacts) explain(a asked) []pending.Answer {
	answers := []pending.Answer{}
	for _, claim := range a.claims {
		answers = append(answers, pending.Explain(w.facts(claim)))
	}
	answers = append(answers, a.missing...)
	for _, pod := range a.pods {
		answers = append(answers, pending.ExplainPod(w.podFacts(pod)))
	}
	return answers
}

// podFacts returns the facts about a pod whose claims have their volumes.
func (w *whyFacts) podFacts(pod corev1.Pod) pending.PodFacts {
	f := pending.PodFacts{Pod: pod, Volumes: map[string]string{}, Nodes: w.nodes, Events: w.events[pod.UID], Unread: w.unread, Now: w.now}
	for _, name := range pending.ClaimNames(&pod) {
		claim := w.claim(name)
		if claim != nil && w.volume(claim) != nil {
			f.Volumes[name] = w.nodeOfClaim(claim)
		}
		if claim != nil && claim.DeletionTimestamp != nil {
			f.Deleted = append(f.Deleted, name)
		}
	}
	return f
}

func (w *whyFacts) claim(name string) *corev1.PersistentVolumeClaim {
	i := slices.IndexFunc(w.claims, func(claim corev1.PersistentVolumeClaim) bool { return claim.Name == name })
	if i < 0 {
		return nil
	}
	return &w.claims[i]
}

// volume returns a claim's volume; nil: it has none, or another driver's.
func (w *whyFacts) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	i := slices.IndexFunc(w.volumes, func(pv corev1.PersistentVolume) bool { return pv.Name == claim.Spec.VolumeName })
	if i < 0 {
		return nil
	}
	return &w.volumes[i]
}

// nodeOfClaim returns the node of a claim's volume, or "" if the claim has no volume or another driver's.
func (w *whyFacts) nodeOfClaim(claim *corev1.PersistentVolumeClaim) string {
	pv := w.volume(claim)
	if pv == nil {
		return ""
	}
	return pending.NodeOfClaim(claim, pv)
}

func (w *whyFacts) class(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	name := api.ClassOf(claim.Annotations, claim.Spec.StorageClassName)
	i := slices.IndexFunc(w.classes, func(class storagev1.StorageClass) bool { return class.Name == name })
	if i < 0 {
		return nil
	}
	return &w.classes[i]
}

// facts returns the facts about one claim.
func (w *whyFacts) facts(claim corev1.PersistentVolumeClaim) pending.Facts {
	f := pending.Facts{Claim: claim, Class: w.class(&claim), OtherVolumes: map[string]string{}, Source: w.source(&claim), Events: w.events[claim.UID], Unread: w.unread, Now: w.now}
	for _, pod := range w.pods {
		if !hasEnded(&pod) && pending.UsesClaim(&pod, claim.Name) {
			f.Pods = append(f.Pods, pod)
			w.addOthers(&f, &pod)
		}
	}
	if f.Class == nil || f.Class.Provisioner != api.DriverName {
		return f // no node has to do with it
	}
	w.keyPolicy.checkKeys(*f.Class, func(_, what, fix string) { f.ClassFaults = append(f.ClassFaults, pending.Cause{Text: what, Fix: fix}) })
	for _, node := range w.nodes {
		f.Nodes = append(f.Nodes, w.node(node, f))
	}
	if len(w.drivers) > 0 {
		f.Namespace = w.drivers[0].Namespace
	}
	return f
}

// addOthers adds the other claims of a pod of the claim.
func (w *whyFacts) addOthers(f *pending.Facts, pod *corev1.Pod) {
	for _, name := range pending.ClaimNames(pod) {
		other := w.claim(name)
		if other == nil || name == f.Claim.Name {
			continue
		}
		if node := w.nodeOfClaim(other); node != "" {
			f.OtherVolumes[name] = node
		}
		known := slices.ContainsFunc(f.Waiting, func(x pending.Waiting) bool { return x.Name == name })
		if class := w.class(other); !known && isProvisioned(other, class) {
			f.Waiting = append(f.Waiting, pending.Waiting{Name: name, Class: class.Name, Size: lvm.Bytes(other.Spec.Resources.Requests.Storage().Value())})
		}
	}
}

// isProvisioned reports whether csi-provisioner will create a volume of this driver for a claim.
func isProvisioned(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Spec.Selector != nil || class == nil || class.Provisioner != api.DriverName || bindsAtOnce(*class) {
		return false
	}
	from := claim.Spec.DataSourceRef
	return from == nil || from.Kind == "VolumeSnapshot" || from.Kind == "PersistentVolumeClaim"
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// node returns what the driver of a node reports about the class, and those of the pods' other waiting claims.
func (w *whyFacts) node(node corev1.Node, f pending.Facts) pending.Node {
	i := slices.IndexFunc(w.answers, func(a answer) bool { return a.node == node.Name })
	if i < 0 {
		return pending.Node{Node: node, Silent: "nodelvm does not run there"}
	}
	a := w.answers[i]
	n := pending.Node{Node: node, Pod: a.pod}
	if i := slices.IndexFunc(w.drivers, func(pod corev1.Pod) bool { return pod.Name == a.pod }); i >= 0 {
		n.Provisioner = provisionerFault(&w.drivers[i])
	}
	if a.err != nil || a.page.NotReady != "" || a.groupsUnread() != "" {
		n.Unknown = a.gap()
		return n
	}
	if c := classOf(a.page, f.Class.Name); c != nil {
		n.Refused, n.Offers = c.Error, c.Offers
	}
	if len(n.Offers) == 0 && n.Refused == "" && a.gap() != "" { // the group may be on a disk that the driver cannot read
		n.Unknown = a.gap()
	}
	n.Wiping, n.Free, n.OnlyGroup = a.page.WipeBacklog, map[lvm.VGName]lvm.Bytes{}, map[string]lvm.VGName{}
	for _, g := range a.page.Groups {
		n.Free[g.Name] = g.Free
	}
	for _, other := range f.Waiting {
		class := w.classes[slices.IndexFunc(w.classes, func(class storagev1.StorageClass) bool { return class.Name == other.Class })]
		if c := classOf(a.page, other.Class); c != nil && len(c.Offers) == 1 && poolOf(class.Parameters) == "" {
			n.OnlyGroup[other.Class] = c.Offers[0].Group
		}
	}
	return n
}

// provisionerFault returns why csi-provisioner in a driver's pod does not run; "": it runs, or the pod does not say.
func provisionerFault(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == "csi-provisioner" && c.State.Running == nil {
			return containerFault(&c)
		}
	}
	return ""
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
