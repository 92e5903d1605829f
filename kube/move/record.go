package move

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// MaxRecord is the maximum size of a record in bytes: it is kept in LVM tags.
const MaxRecord = 2048

// Record is what rebuilds a PersistentVolume while the API server has none: between the deletion of one and the creation of the next.
type Record struct {
	From      string    `json:"from"` // nodes
	To        string    `json:"to"`
	Namespace string    `json:"ns"`
	Claim     string    `json:"claim"`
	UID       types.UID `json:"uid"`            // the claim's
	With      []string  `json:"with,omitempty"` // the other claims of this move, in the same namespace, sorted

	Handle string `json:"handle"` // on the source
	UUID   string `json:"uuid"`   // of the source's logical volume
	Group  string `json:"group"`  // its volume group's name, as in the PersistentVolume

	Policy          corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	Capacity        string                               `json:"capacity"`
	Class           string                               `json:"class"`
	AttributesClass string                               `json:"attributesClass,omitempty"`
	Modes           []corev1.PersistentVolumeAccessMode  `json:"modes"`
	Block           bool                                 `json:"block,omitempty"`
	MountOptions    []string                             `json:"mountOptions,omitempty"`
	FSType          string                               `json:"fsType,omitempty"`
	StageSecret     *corev1.SecretReference              `json:"stageSecret,omitempty"`
	ExpandSecret    *corev1.SecretReference              `json:"expandSecret,omitempty"`
	Attributes      map[string]string                    `json:"attributes,omitempty"` // without those of the logical volume
	DeletionSecrets bool                                 `json:"deletionSecrets,omitempty"`

	Confirmed string `json:"confirmed,omitempty"` // on the target: the hold for which the source handed the volume over
}

// csi-provisioner's annotations of the Secrets for a deletion; the driver needs none, so both are empty.
var deletionSecrets = []string{"volume.kubernetes.io/provisioner-deletion-secret-name", "volume.kubernetes.io/provisioner-deletion-secret-namespace"}

// notCopied are the attributes that belong to the logical volume.
var notCopied = []string{api.AttributeUUID, api.AttributeVolumeGroup}

// key is the claim's namespace/name.
func (r *Record) key() string { return r.Namespace + "/" + r.Claim }

// name is that of the PersistentVolume.
func (r *Record) name() string { return api.PrefixVolume + string(r.UID) }

func (r *Record) text() string { return textOf(r) }

// textOf encodes a record or an answer.
func textOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers, and maps of them
	}
	return string(text)
}

// longest is the size of the record with the longest hold for which the volume can be handed over. A target that cannot note this could not go on.
func (r *Record) longest() int {
	confirmed := *r
	confirmed.Confirmed = strings.Repeat("0", maxHold)
	return len(confirmed.text())
}

// maxHold is more than a hold has.
const maxHold = 64

// parseRecord decodes a record; nil: there is none, or it is not one. Another node may have written it.
func parseRecord(text string) *Record {
	if text == "" || len(text) > MaxRecord {
		return nil
	}
	var r Record
	if json.Unmarshal([]byte(text), &r) != nil || r.UID == "" || r.From == "" || r.To == "" || !capacity.MatchString(r.Capacity) {
		return nil
	}
	return &r
}

// capacity is one as csi-provisioner and the driver write it: without an exponent, with which the arithmetic of quantities does not end.
var capacity = regexp.MustCompile(`^[1-9][0-9]{0,18}(k|Ki|[MGTPE]i?)?$`)

// newRecord describes a PersistentVolume that is on this node and has a claim, for a move to another one. The error is a sentence that says why no
// node can rebuild the PersistentVolume.
func newRecord(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, from, to string, with []string) (*Record, error) {
	csi := pv.Spec.CSI
	r := &Record{
		From: from, To: to, Namespace: claim.Namespace, Claim: claim.Name, UID: claim.UID, With: with,
		Handle: csi.VolumeHandle, UUID: csi.VolumeAttributes[api.AttributeUUID], Group: csi.VolumeAttributes[api.AttributeVolumeGroup],
		Policy: pv.Spec.PersistentVolumeReclaimPolicy, Capacity: pv.Spec.Capacity.Storage().String(), Class: pv.Spec.StorageClassName, Modes: pv.Spec.AccessModes,
		Block: pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock, MountOptions: pv.Spec.MountOptions, FSType: csi.FSType,
		StageSecret: csi.NodeStageSecretRef, ExpandSecret: csi.NodeExpandSecretRef, Attributes: maps.Clone(csi.VolumeAttributes),
	}
	if pv.Spec.VolumeAttributesClassName != nil {
		r.AttributesClass = *pv.Spec.VolumeAttributesClassName
	}
	_, r.DeletionSecrets = pv.Annotations[deletionSecrets[0]]
	maps.DeleteFunc(r.Attributes, func(k, _ string) bool { return slices.Contains(notCopied, k) })
	if pv.Name != r.name() {
		return nil, fmt.Errorf("PersistentVolume %s was not created for this claim: its name is not %s. Only volumes that a StorageClass created can move", pv.Name, r.name())
	}
	if size := r.longest(); size > MaxRecord {
		return nil, fmt.Errorf("PersistentVolume %s has too long fields: its record has %d bytes, and at most %d are possible", pv.Name, size, MaxRecord)
	}
	return r, r.rebuilds(pv)
}

// rebuilds reports whether the record says everything of a PersistentVolume that is on its source.
func (r *Record) rebuilds(pv *corev1.PersistentVolume) error {
	if has := pv.Spec.Capacity.Storage().String(); !capacity.MatchString(has) {
		return fmt.Errorf("PersistentVolume %s has the capacity %s, which csi-provisioner does not write; correct it", pv.Name, kubeclient.Quoted(has))
	}
	again := r.onSource(false)
	switch {
	case len(pv.Labels) > 0:
		return fmt.Errorf("PersistentVolume %s has the label %s, which no node may write; remove its labels", pv.Name, kubeclient.Quoted(slices.Sorted(maps.Keys(pv.Labels))[0]))
	case len(pv.OwnerReferences) > 0:
		return fmt.Errorf("PersistentVolume %s has an owner, which no node may write; remove metadata.ownerReferences", pv.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(pv.Annotations)) {
		if want, ok := again.Annotations[k]; !slices.Contains(ourAnnotations, k) && (!ok || want != pv.Annotations[k]) {
			return fmt.Errorf("PersistentVolume %s has the annotation %s, which no node may write; remove it", pv.Name, kubeclient.Quoted(k))
		}
	}
	for _, f := range pv.Finalizers {
		if f != "kubernetes.io/pv-protection" && f != api.FinalizerProvisioner {
			return fmt.Errorf("PersistentVolume %s has the finalizer %s of another program; remove it", pv.Name, kubeclient.Quoted(f))
		}
	}
	had, has := pv.Spec.DeepCopy(), again.Spec.DeepCopy()
	had.PersistentVolumeReclaimPolicy, has.PersistentVolumeReclaimPolicy = "", ""
	had.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: kubeclient.KindClaim, Namespace: had.ClaimRef.Namespace, Name: had.ClaimRef.Name, UID: had.ClaimRef.UID}
	if had.VolumeMode == nil {
		had.VolumeMode = has.VolumeMode
	}
	if !apiequality.Semantic.DeepEqual(had, has) {
		return fmt.Errorf("PersistentVolume %s has fields that csi-provisioner does not set; no node may write them", pv.Name)
	}
	return nil
}

// describes reports whether the record still says everything of a PersistentVolume that has not begun to move: others may change that one until its
// annotations say so.
func (r *Record) describes(pv *corev1.PersistentVolume) bool {
	return pv.Spec.ClaimRef != nil && pv.Spec.PersistentVolumeReclaimPolicy == r.Policy && r.rebuilds(pv) == nil
}

// onSource is the PersistentVolume of the source's volume. Parked, it has a second rule, which no node satisfies.
func (r *Record) onSource(parked bool) *corev1.PersistentVolume {
	pv := r.volume(r.From, r.Handle, r.UUID, r.Group)
	if parked {
		term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: api.ParkedKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}})
	}
	return pv
}

// onTarget is the PersistentVolume of the target's volume.
func (r *Record) onTarget(local lvm.Volume) *corev1.PersistentVolume {
	return r.volume(r.To, local.ID.String(), local.UUID, string(local.Group))
}

func (r *Record) volume(node, handle, uuid, group string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	if r.Block {
		mode = corev1.PersistentVolumeBlock
	}
	attributes := maps.Clone(r.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	for k, value := range map[string]string{api.AttributeUUID: uuid, api.AttributeVolumeGroup: group} {
		if value != "" {
			attributes[k] = value
		}
	}
	if len(attributes) == 0 {
		attributes = nil
	}
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: r.name(), Annotations: map[string]string{
			api.AnnotationProvisionedBy: api.DriverName, api.AnnotationMoveRecord: r.text(), api.AnnotationMovingTo: r.To,
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(r.Capacity)}, AccessModes: r.Modes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: r.Class, MountOptions: r.MountOptions, VolumeMode: &mode,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: kubeclient.KindClaim, Namespace: r.Namespace, Name: r.Claim, UID: r.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: api.DriverName, VolumeHandle: handle, FSType: r.FSType, VolumeAttributes: attributes, NodeStageSecretRef: r.StageSecret, NodeExpandSecretRef: r.ExpandSecret,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
	if r.AttributesClass != "" {
		pv.Spec.VolumeAttributesClassName = &r.AttributesClass
	}
	if r.DeletionSecrets {
		for _, k := range deletionSecrets {
			pv.Annotations[k] = ""
		}
	}
	return pv
}

// ourAnnotations are those of a PersistentVolume that moves.
var ourAnnotations = []string{api.AnnotationMoveRecord, api.AnnotationMovingTo, api.AnnotationMoveOffer, api.AnnotationMoveAnswer, api.AnnotationHandedOver}

// offered reads the source's offer from its PersistentVolume.
func offered(pv *corev1.PersistentVolume) (o Offer, ok bool) {
	return o, json.Unmarshal([]byte(pv.Annotations[api.AnnotationMoveOffer]), &o) == nil && o.Move != "" && len(o.Move) <= maxHold
}

// Answer is what the target says of an offer, in its annotation of the source's PersistentVolume.
type Answer struct {
	Key       string    `json:"key,omitempty"` // of the process that copies
	Done      lvm.Bytes `json:"done,omitempty"`
	Total     lvm.Bytes `json:"total,omitempty"`
	Round     string    `json:"round,omitempty"`     // The round that the target has completely, and nothing of a later one.
	Sent      lvm.Bytes `json:"sent,omitempty"`      // What that round copied; 0: unknown.
	Received  string    `json:"received,omitempty"`  // The hold of which the target has a complete, durable copy.
	Confirmed string    `json:"confirmed,omitempty"` // the hold that the target knows to be handed over
	Problem   string    `json:"problem,omitempty"`   // what the target waits for
	Queued    bool      `json:"queued,omitempty"`    // Problem is that other copies come first, and no user has to act
}

func answered(pv *corev1.PersistentVolume) (a Answer) {
	if json.Unmarshal([]byte(pv.Annotations[api.AnnotationMoveAnswer]), &a) != nil {
		return Answer{}
	}
	a.Problem = cut(a.Problem)
	return a
}

// problem is the source's step while the target waits.
func (a Answer) problem(phase string) step {
	if a.Queued {
		return waiting(phase, a.Problem)
	}
	return blocked(phase, a.Problem)
}

// share says how much is copied to the target.
func (a Answer) share(target string) string {
	if a.Total == 0 {
		return "the copy to node " + target + " begins"
	}
	return fmt.Sprintf("%s of %s are copied to node %s", a.Done, a.Total, target)
}

func (a Answer) text() string { return textOf(a) }
