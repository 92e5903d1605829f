package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A volume cannot be moved to another node, so one that is made while the pod's next one has no room there leaves the pod
// without a node for ever. Who makes a claim's volume asks first which others are of use only together with it.

// Company is what a claim is of use together with: the pods that wait for a node with it, or with claims that they share, and
// the other claims of these pods.
type Company struct {
	Pods   []string // their names, the hardest to place first; none: no pod waits with the claim
	PodUID string   // of the first
	Claims []Sibling
}

// Sibling is another claim of these pods, of this driver.
type Sibling struct {
	Name, UID string
	Node      string // that its volume is on or, if it is not bound, that is selected for it; "": none yet
	Bound     bool
	Indirect  bool // no pod uses both: the claims of further pods connect the two

	// Of one that is not bound: what csi-provisioner will ask of CreateVolume.
	Size        int64 // bytes
	Block       bool  // a raw device
	AccessModes []string
	Parameters  map[string]string // its StorageClass'
}

// companyPatience bounds how long the API server's answers about one claim are awaited.
const companyPatience = 10 * time.Second

// Company finds what a claim is of use together with. It costs one listing of pods, which calls at one time share, and for
// each further claim one reading, two if that is bound; a claim that is its pod's only one costs nothing more.
// Claims that can never be had from this driver are left out: those that are gone or being deleted, and those of an
// Immediate class. The error is the API server's.
func (a *Agent) Company(ctx context.Context, namespace, claim string) (Company, error) {
	ctx, cancel := context.WithTimeout(ctx, companyPatience)
	defer cancel()
	pods, err := a.pods.waiting(ctx, namespace)
	if err != nil {
		return Company{}, err
	}
	return a.gather(ctx, pods, namespace, claim)
}

// Asked notes that a claim's volume is asked for, until that is answered: nobody has overlooked the claim.
func (a *Agent) Asked(namespace, claim string) (answered func()) {
	return a.claims.asked(namespace + "/" + claim)
}

// Waiting tells from memory whether a claim has neither a volume yet nor been deleted.
func (a *Agent) Waiting(namespace, claim, uid string) bool {
	waiting, ok := a.claims.waiting(namespace + "/" + claim)
	return ok && string(waiting.UID) == uid && waiting.Spec.VolumeName == ""
}

// Given tells from memory whether a claim waits for its volume, and the scheduler has chosen this node for it.
func (a *Agent) Given(namespace, claim, uid string) bool {
	waiting, ok := a.claims.waiting(namespace + "/" + claim)
	return ok && string(waiting.UID) == uid && waiting.Spec.VolumeName == "" && waiting.DeletionTimestamp == nil &&
		waiting.Annotations[annSelectedNode] == a.claims.node
}

// Warn writes a warning on a claim; one that was given under the same reason before is not repeated as long as it stands.
// What could not be written is in the log.
func (a *Agent) Warn(ctx context.Context, namespace, claim, uid, reason, message string) {
	n := news{aboutClaim(namespace, claim, types.UID(uid)), corev1.EventTypeWarning, reason, message}
	if err := a.events.once(ctx, n); err != nil {
		a.log.WarnContext(ctx, "cannot write an event", "reason", reason, "about", namespace+"/"+claim, "message", message, "error", err)
	}
}

// isWaiting tells whether the scheduler may be looking for a node for the pod.
func isWaiting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func ephemeralClaim(pod *corev1.Pod, v corev1.Volume) string { return pod.Name + "-" + v.Name }

// owns tells whether the claim is one that was made for a generic ephemeral volume of the pod, if the pod has one of its name.
func (pod *waitingPod) owns(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return !slices.Contains(pod.ephemeral, claim.Name) || owner != nil && owner.UID == pod.uid
}

// sibling is what is kept of a claim; ours is false for one that this driver makes no volume for. The claim is read afresh, not
// taken from what the watch left: a selected node of a moment ago would have volumes refused, or made, that should not be.
func (a *Agent) sibling(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s Sibling, ours bool, err error) {
	switch {
	case claim.DeletionTimestamp != nil:
		return Sibling{}, false, nil
	case claim.Spec.VolumeName != "":
		return a.boundSibling(ctx, claim)
	case claim.Spec.Selector != nil:
		return Sibling{}, false, nil // csi-provisioner makes no volume for it
	}
	class, err := a.classNamed(ctx, classOf(claim))
	if err != nil || class == nil || bindsImmediately(class) {
		return Sibling{}, false, err
	}
	s = Sibling{
		Name: claim.Name, UID: string(claim.UID), Node: claim.Annotations[annSelectedNode],
		Size:       claim.Spec.Resources.Requests.Storage().Value(),
		Block:      claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock,
		Parameters: class.Parameters,
	}
	for _, mode := range claim.Spec.AccessModes {
		s.AccessModes = append(s.AccessModes, string(mode))
	}
	return s, true, nil
}

func (a *Agent) boundSibling(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s Sibling, ours bool, err error) {
	pv, err := a.client.volume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != DriverName || !mayBind(pv, claim) {
		return Sibling{}, false, err
	}
	return Sibling{Name: claim.Name, UID: string(claim.UID), Node: nodeOf(pv), Bound: true}, true, nil
}

// nodeOf reads the node from a PersistentVolume's affinity; "": it names none, or more than one.
func nodeOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == topologyKey && len(e.Values) == 1 && isOn(pv, e.Values[0]) {
				return e.Values[0]
			}
		}
	}
	return ""
}

// classNamed finds a class of this driver: in memory, or, as long as the watch has not brought it, by asking. Nil: there is
// none of that name, or it is another driver's.
func (a *Agent) classNamed(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if class, ok := a.classes.find(name); ok || name == "" {
		return class, nil
	}
	var class storagev1.StorageClass
	there, err := get(ctx, a.client.storage, "storageclasses", "", name, &class)
	if err != nil {
		return nil, fmt.Errorf("read StorageClass %s: %w", name, err)
	}
	if !there || class.Provisioner != DriverName {
		return nil, nil
	}
	return &class, nil
}
