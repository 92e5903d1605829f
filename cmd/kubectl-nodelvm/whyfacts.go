package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// find returns the first element that matches; nil: none does.
func find[T any](list []T, matches func(*T) bool) *T {
	for i := range list {
		if matches(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// asked is what why explains: claims, claims that do not exist, and pods.
type asked struct {
	claims  []corev1.PersistentVolumeClaim
	missing []pending.Answer
	pods    []corev1.Pod // whose claims have their volumes
}

// named returns what has the name in a namespace: a claim, a pod, or both.
func (f *facts) named(namespace, name string) (asked, error) {
	kind, short, cut := strings.Cut(name, "/")
	if !cut {
		kind, short = "", name
	}
	var a asked
	if claim := f.claim(namespace, short); claim != nil && slices.Contains([]string{"", "pvc", "persistentvolumeclaim", "claim"}, kind) {
		a.addClaim(f, claim)
	}
	pod := find(f.pods, func(pod *corev1.Pod) bool { return pod.Namespace == namespace && pod.Name == short })
	if pod != nil && slices.Contains([]string{"", "pod", "po"}, kind) {
		a.addPod(f, pod)
	}
	if len(a.claims)+len(a.missing)+len(a.pods) == 0 {
		return a, fmt.Errorf("namespace %s has neither a claim nor a pod %q; choose the namespace with -n", namespace, name)
	}
	return a, nil
}

// addClaim adds a claim, and if it has its volume, the pods that use it and wait.
func (a *asked) addClaim(f *facts, claim *corev1.PersistentVolumeClaim) {
	a.claims = append(a.claims, *claim)
	if claim.Status.Phase != corev1.ClaimBound {
		return
	}
	for i := range f.pods {
		if f.pods[i].Status.Phase == corev1.PodPending && uses(&f.pods[i], claim) {
			a.addPod(f, &f.pods[i])
		}
	}
}

// addPod adds the claims of a pod that have no volume, or the pod itself if all have theirs.
func (a *asked) addPod(f *facts, pod *corev1.Pod) {
	all := true
	for _, name := range pending.ClaimNames(pod) {
		claim := f.claim(pod.Namespace, name)
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
func (f *facts) explain(a asked) []pending.Answer {
	answers := []pending.Answer{}
	for _, claim := range a.claims {
		answers = append(answers, pending.Explain(f.ofClaim(claim)))
	}
	answers = append(answers, a.missing...)
	for _, pod := range a.pods {
		answers = append(answers, pending.ExplainPod(f.ofPod(pod)))
	}
	return answers
}

// ofPod returns the facts about a pod whose claims have their volumes.
func (f *facts) ofPod(pod corev1.Pod) pending.PodFacts {
	p := pending.PodFacts{Pod: pod, Volumes: map[string]string{}, Moving: map[string]string{}, Nodes: f.nodes, Events: f.events[pod.UID], Unread: f.unexplained, Now: f.now}
	for _, name := range pending.ClaimNames(&pod) {
		claim := f.claim(pod.Namespace, name)
		if claim == nil {
			continue
		}
		if pv := f.volume(claim); pv != nil {
			p.Volumes[name] = f.nodeOfClaim(claim)
			if to := pv.Annotations[api.AnnotationMovingTo]; to != "" && pending.MayBind(pv, claim) {
				p.Moving[name] = to
			}
		}
		if claim.DeletionTimestamp != nil {
			p.Deleted = append(p.Deleted, name)
		}
	}
	return p
}

func (f *facts) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return find(f.claims, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Namespace == namespace && claim.Name == name
	})
}

// volume returns a claim's volume; nil: it has none, or another driver's.
func (f *facts) volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return find(f.volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == claim.Spec.VolumeName })
}

// nodeOfClaim returns the node of a claim's volume, or "" if the claim has no volume or another driver's.
func (f *facts) nodeOfClaim(claim *corev1.PersistentVolumeClaim) string {
	pv := f.volume(claim)
	if pv == nil {
		return ""
	}
	return pending.NodeOfClaim(claim, pv)
}

// class returns a class of any driver by name; nil: there is none.
func (f *facts) class(name string) *storagev1.StorageClass {
	is := func(class *storagev1.StorageClass) bool { return class.Name == name }
	if class := find(f.classes, is); class != nil {
		return class
	}
	return find(f.otherClasses, is)
}

// classOfClaim returns a claim's class, of any driver; nil: it does not exist.
func (f *facts) classOfClaim(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	return f.class(api.ClassOf(claim.Annotations, claim.Spec.StorageClassName))
}

// ofClaim returns the facts about one claim.
func (f *facts) ofClaim(claim corev1.PersistentVolumeClaim) pending.Facts {
	p := pending.Facts{Claim: claim, Class: f.classOfClaim(&claim), OtherVolumes: map[string]string{}, Source: f.source(&claim), Events: f.events[claim.UID], Unread: f.unexplained, Now: f.now}
	for _, pod := range f.pods {
		if !hasEnded(&pod) && uses(&pod, &claim) {
			p.Pods = append(p.Pods, pod)
			f.addOthers(&p, &pod)
		}
	}
	if p.Class == nil || p.Class.Provisioner != api.DriverName {
		return p // no node has to do with it
	}
	f.keyPolicy.checkKeys(*p.Class, func(_, what, fix string) { p.ClassFaults = append(p.ClassFaults, pending.Cause{Text: what, Fix: fix}) })
	for _, node := range f.nodes {
		p.Nodes = append(p.Nodes, f.node(node, p))
	}
	if len(f.drivers) > 0 {
		p.Namespace = f.drivers[0].Namespace
	}
	return p
}

// addOthers adds the other claims of a pod of the claim.
func (f *facts) addOthers(p *pending.Facts, pod *corev1.Pod) {
	for _, name := range pending.ClaimNames(pod) {
		other := f.claim(pod.Namespace, name)
		if other == nil || name == p.Claim.Name {
			continue
		}
		if node := f.nodeOfClaim(other); node != "" {
			p.OtherVolumes[name] = node
		}
		known := slices.ContainsFunc(p.Waiting, func(x pending.Waiting) bool { return x.Name == name })
		if class := f.classOfClaim(other); !known && isProvisioned(other, class) {
			p.Waiting = append(p.Waiting, pending.Waiting{Name: name, Class: class.Name, Size: pending.BytesOf(other.Spec.Resources.Requests.Storage())})
		}
	}
}

// isProvisioned reports whether csi-provisioner will create a volume of this driver for a claim.
func isProvisioned(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && !pending.IsBoundByOthers(claim) && !pending.LostSource(claim) &&
		class != nil && class.Provisioner == api.DriverName && !bindsAtOnce(*class)
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	return pod.Namespace == claim.Namespace && pending.UsesClaim(pod, claim.Name)
}

// node returns what the driver of a node reports about the class, and those of the pods' other waiting claims.
func (f *facts) node(node corev1.Node, p pending.Facts) pending.Node {
	a := answerOf(f.answers, node.Name)
	if a == nil {
		return pending.Node{Node: node, NoVolumes: "nodelvm does not run there"}
	}
	n := pending.Node{Node: node, Pod: a.pod, CSINode: f.csiNode(node.Name), Provisioner: f.provisionerFault(a)}
	if a.err != nil || a.page.NotReady != "" || a.groupsUnread() != "" {
		n.Unknown = a.incomplete()
		return n
	}
	if c := classOf(a.page, p.Class.Name); c != nil {
		n.Refused, n.Offers = c.Error, c.Offers
	}
	if len(n.Offers) == 0 && n.Refused == "" && a.incomplete() != "" { // the group may be on a disk that the driver cannot read
		n.Unknown = a.incomplete()
	}
	for _, u := range a.page.Unaccepted {
		n.Ignored = append(n.Ignored, u.Device)
	}
	n.Wiping, n.Free, n.OnlyGroup = a.page.WipeBacklog, map[lvm.VGName]lvm.Bytes{}, map[string]lvm.VGName{}
	for _, g := range a.page.Groups {
		n.Free[g.Name] = g.Free
	}
	for _, other := range p.Waiting {
		if c := classOf(a.page, other.Class); c != nil && len(c.Offers) == 1 && poolOf(f.class(other.Class).Parameters) == "" {
			n.OnlyGroup[other.Class] = c.Offers[0].Group
		}
	}
	return n
}

// csiNode returns what the kubelet of a node has registered, perhaps nothing; nil: unknown.
func (f *facts) csiNode(name string) *storagev1.CSINode {
	if f.csiNodes == nil {
		return nil
	}
	if n := find(f.csiNodes, func(n *storagev1.CSINode) bool { return n.Name == name }); n != nil {
		return n
	}
	return &storagev1.CSINode{}
}

// provisionerFault returns why csi-provisioner beside a driver does not run; "": it runs, or the pod does not say.
func (f *facts) provisionerFault(a *answer) string {
	pod := find(f.drivers, func(pod *corev1.Pod) bool { return pod.Name == a.pod })
	if pod == nil {
		return ""
	}
	c := find(pod.Status.ContainerStatuses, func(c *corev1.ContainerStatus) bool { return c.Name == "csi-provisioner" })
	if c == nil || c.State.Running != nil {
		return ""
	}
	return containerFault(c)
}

// source returns the snapshot or claim that a claim is restored or cloned from; nil if it has none, or one of another kind.
func (f *facts) source(claim *corev1.PersistentVolumeClaim) *pending.Source {
	from := claim.Spec.DataSource
	if from == nil {
		return nil
	}
	s := &pending.Source{Kind: from.Kind, Name: from.Name, Missing: true}
	switch from.Kind {
	case "PersistentVolumeClaim":
		if other := f.claim(claim.Namespace, from.Name); other != nil {
			s.Missing, s.NotReady, s.Node = false, other.Status.Phase != corev1.ClaimBound, f.nodeOfClaim(other)
			if by := api.ProvisionerOf(other.Annotations); !s.NotReady && by != "" && by != api.DriverName {
				s.Foreign = by
			}
		}
	case "VolumeSnapshot":
		for _, snapshot := range f.snapshots {
			if snapshot.Namespace == claim.Namespace && snapshot.Name == from.Name {
				s.Missing, s.NotReady = false, snapshot.Status.Ready == nil || !*snapshot.Status.Ready
			}
		}
		for _, item := range f.contents {
			if item.name() == claim.Namespace+"/"+from.Name {
				s.Node = item.Labels[api.LabelManagedBy]
			}
		}
	default:
		return nil
	}
	return s
}
