package kube

import (
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// Adoption describes how to adopt a volume.
type Adoption struct {
	Volume     lvm.Volume
	Attributes map[string]string // as CreateVolume returns them
	Node       string
	Claim      string // "namespace/name"; "": create no claim, any claim may bind the volume
	Class      string // name of a storage class; "": none
	FSType     string // "": a raw block volume
	Policy     corev1.PersistentVolumeReclaimPolicy
	Key        *corev1.SecretReference // of an encrypted volume
}

// Manifests returns the PersistentVolume, and the claim if Claim names one, as input for kubectl apply.
func Manifests(a Adoption) (string, error) {
	namespace, name := kubeclient.ClaimKey(a.Claim)
	if a.Claim != "" && (namespace == "" || name == "" || strings.Contains(name, "/")) {
		return "", errors.New("give the claim as NAMESPACE/NAME, not " + a.Claim)
	}
	pv := a.volume()
	if a.Claim == "" {
		return manifest(pv)
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: kubeclient.KindClaim, Namespace: namespace, Name: name}
	first, err := manifest(pv)
	if err != nil {
		return "", err
	}
	second, err := manifest(a.claim(namespace, name))
	return first + second, err
}

func (a Adoption) volume() *corev1.PersistentVolume {
	mode, access := corev1.PersistentVolumeFilesystem, corev1.ReadWriteOnce
	if a.FSType == "" {
		mode = corev1.PersistentVolumeBlock
	}
	if a.Volume.Access.ReadOnly() {
		access = corev1.ReadOnlyMany
	}
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume},
		ObjectMeta: metav1.ObjectMeta{
			Name:        a.Volume.Name,
			Annotations: map[string]string{api.AnnotationProvisionedBy: api.DriverName},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: a.size()},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{access},
			PersistentVolumeReclaimPolicy: a.Policy,
			StorageClassName:              a.Class,
			VolumeMode:                    &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: api.DriverName, VolumeHandle: a.Volume.ID.String(), FSType: a.FSType, VolumeAttributes: a.Attributes,
				NodeStageSecretRef: a.Key, NodeExpandSecretRef: a.Key,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{a.Node}}},
			}}}},
		},
	}
}

func (a Adoption) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	pv := a.volume()
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{api.AnnotationSelectedNode: a.Node}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      pv.Spec.AccessModes,
			VolumeMode:       pv.Spec.VolumeMode,
			VolumeName:       pv.Name,
			StorageClassName: &a.Class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: a.size()}},
		},
	}
}

func (a Adoption) size() resource.Quantity {
	return *resource.NewQuantity(int64(a.Volume.Size), resource.BinarySI)
}

// manifest returns an object as YAML, without the fields that only the API server sets.
func manifest(o any) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	out, err := yaml.Marshal(fields)
	return "---\n" + string(out), err
}
