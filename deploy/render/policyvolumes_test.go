package main

import (
	"reflect"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumeRequests are what is written of PersistentVolumes.
func volumeRequests() []request {
	return append([]request{
		{name: "create its volume", now: volume("node-1")},
		{name: "create it, held for its deletion", now: held(volume("node-1"))},
		{name: "create it where no finalizer was added yet", now: unguarded(volume("node-1"))},
		{name: "create a read-only copy", now: but(asReadOnlyCopy)},
		{name: "create a retained volume", now: retained("node-1")},
		{name: "patch its volume's finalizer", before: volume("node-1"), now: volume("node-1")},
		{name: "hold its volume", before: volume("node-1"), now: held(volume("node-1"))},
		{name: "let go of its volume once that is deleted", before: released(held(volume("node-1"))), now: released(volume("node-1"))},
		{name: "remove its released volume", before: released(volume("node-1"))},
		{name: "free a retained volume", before: held(retained("node-2")), now: retained("node-2")},
		{name: "hold a volume that shall be deleted", before: volume("node-2"), now: held(volume("node-2"))},
		{name: "note that its volume's group is lost", before: volume("node-1"), now: losing(groupLost, volume("node-1"))},
		{name: "take back that its volume is lost", before: losing(lostSince, losing(groupLost, volume("node-1"))), now: volume("node-1")},
		{name: "give its volume its new size", before: volume("node-1"), now: sized(volume("node-1"))},

		{name: "free another node's volume", before: held(volume("node-2")), now: volume("node-2"), refused: mayOnly},
		{name: "hold a retained volume", before: retained("node-2"), now: held(retained("node-2")), refused: mayOnly},
		{name: "free another driver's volume", before: of("other.io", held(retained("node-2"))), now: of("other.io", retained("node-2")), refused: mayOnly},
		{name: "retain another node's volume", before: held(volume("node-2")), now: retained("node-2"), refused: mayOnly},
		{name: "take away other finalizers", before: held(retained("node-2")), now: unguarded(retained("node-2")), refused: mayOnly},
		{name: "label while freeing", before: held(retained("node-2")), now: labelled(retained("node-2")), refused: mayOnly},
		{name: "make another node's volume", now: volume("node-2"), refused: mayOnly},
		{name: "remove another node's volume", before: volume("node-2"), refused: mayOnly},
		{name: "patch another node's volume", before: volume("node-2"), now: labelled(volume("node-2")), refused: mayOnly},
		{name: "move its volume away", before: volume("node-1"), now: volume("node-2"), refused: mayOnly},
		{name: "take another node's volume over", before: volume("node-2"), now: volume("node-1"), refused: mayOnly},
		{name: "make another driver's volume", now: of("other.io", volume("node-1")), refused: mayOnly},
		{name: "remove another driver's volume", before: of("other.io", volume("node-1")), refused: mayOnly},
		{name: "remove a volume that is no CSI volume", before: of("", volume("node-1")), refused: mayOnly},
		{name: "remove a volume of no node", before: volume(), refused: mayOnly},
		{name: "remove a volume of two nodes", before: volume("node-1", "node-2"), refused: mayOnly},
		{name: "make a volume for either of two nodes", now: either(volume("node-1"), volume("node-2")), refused: mayOnly},
		{name: "make a volume for all but a node", now: operator(core.NodeSelectorOpNotIn, volume("node-1")), refused: mayOnly},
		{name: "give another node's volume another size", before: volume("node-2"), now: sized(volume("node-2")), refused: mayOnly},
		{name: "remove its volume while a claim has it", before: volume("node-1"), refused: mayOnly},
		{name: "remove its retained volume", before: released(retained("node-1")), refused: mayOnly},
		{name: "note that its node is lost", before: volume("node-1"), now: losing(lostSince, volume("node-1")), refused: mayOnly},
		{name: "note that its node was lost before", before: losing(lostSince, volume("node-1")), now: but(func(pv *core.PersistentVolume) {
			pv.Annotations[lostSince] = "2020-01-02T03:04:05Z"
		}), refused: mayOnly},
		{name: "note that another node's group is lost", before: volume("node-2"), now: losing(groupLost, volume("node-2")), refused: mayOnly},
		{name: "shrink its volume", before: sized(volume("node-1")), now: volume("node-1"), refused: mayOnly},
		{name: "enlarge and annotate", before: volume("node-1"), now: sized(but(func(pv *core.PersistentVolume) { pv.Annotations["a"] = "b" })), refused: mayOnly},
		{name: "write its volume's status", sub: "status", before: volume("node-1"), now: released(volume("node-1")), refused: mayOnly},
	}, append(creations(), changes()...)...)
}

// asReadOnlyCopy makes a volume one that csi-provisioner creates for a ReadOnlyMany claim from a snapshot.
func asReadOnlyCopy(pv *core.PersistentVolume) {
	pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadOnlyMany}
	pv.Spec.CSI.VolumeAttributes["nodelvm.io/source"] = groupUUID + "/snap-1"
}

// creations are volumes that csi-provisioner never makes.
func creations() (list []request) {
	secret := &core.SecretReference{Namespace: "kube-system", Name: "root"}
	for name, change := range map[string]func(*core.PersistentVolume){
		"under another name":              func(pv *core.PersistentVolume) { pv.Name = "data" },
		"named after another claim":       func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" },
		"for no claim":                    func(pv *core.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"for a claim without a UID":       func(pv *core.PersistentVolume) { pv.Name, pv.Spec.ClaimRef.UID = "pvc-", "" },
		"for a claim without a name":      func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.Name = "" },
		"for a claim of no namespace":     func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.Namespace = "" },
		"for something else than a claim": func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.Kind = "Pod" },
		"with another logical volume":     func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = groupUUID + "/pvc-x" },
		"with a handle of no group":       func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vg/" + volumeName },
		"with a handle of two parts":      func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = groupUUID + "/x/" + volumeName },
		"with an unknown attribute":       func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["a"] = "b" },
		"read-only":                       func(pv *core.PersistentVolume) { pv.Spec.CSI.ReadOnly = true },
		"with a note of its loss":         func(pv *core.PersistentVolume) { *pv = *losing(lostSince, pv) },
		"with a note of its group's loss": func(pv *core.PersistentVolume) { *pv = *losing(groupLost, pv) },
		"of no class":                     func(pv *core.PersistentVolume) { pv.Spec.StorageClassName = "" },
		"with an attributes class":        func(pv *core.PersistentVolume) { class := "x"; pv.Spec.VolumeAttributesClassName = &class },
		"for many nodes to read, of no source": func(pv *core.PersistentVolume) {
			asReadOnlyCopy(pv)
			delete(pv.Spec.CSI.VolumeAttributes, "nodelvm.io/source")
		},
		"for many nodes to read, and write": func(pv *core.PersistentVolume) {
			asReadOnlyCopy(pv)
			pv.Spec.AccessModes = append(pv.Spec.AccessModes, core.ReadWriteOnce)
		},
		"with another resource":  func(pv *core.PersistentVolume) { pv.Spec.Capacity["iops"] = resource.MustParse("1") },
		"with a label":           func(pv *core.PersistentVolume) { pv.Labels = map[string]string{"a": "b"} },
		"with an annotation":     func(pv *core.PersistentVolume) { pv.Annotations["a"] = "b" },
		"made by another driver": func(pv *core.PersistentVolume) { pv.Annotations[provisionedBy] = "other.io" },
		"made by none":           func(pv *core.PersistentVolume) { delete(pv.Annotations, provisionedBy) },
		"with a secret for deletion": func(pv *core.PersistentVolume) {
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = "root"
		},
		"with a finalizer": func(pv *core.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "a/b") },
		"with an owner": func(pv *core.PersistentVolume) {
			pv.OwnerReferences = []meta.OwnerReference{{Kind: "Pod", Name: "x", UID: "x"}}
		},
		"chosen by a field, too": func(pv *core.PersistentVolume) {
			term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
			term.MatchFields = []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{"node-2"}}}
		},
		"chosen by another label, too": func(pv *core.PersistentVolume) {
			term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
			term.MatchExpressions = append(term.MatchExpressions, core.NodeSelectorRequirement{Key: "a", Operator: core.NodeSelectorOpExists})
		},
	} {
		list = append(list, request{name: "create a volume " + name, now: but(change), refused: mayOnly})
	}
	for name, change := range map[string]func(*core.CSIPersistentVolumeSource){
		"controllerPublishSecretRef": func(c *core.CSIPersistentVolumeSource) { c.ControllerPublishSecretRef = secret },
		"nodeStageSecretRef":         func(c *core.CSIPersistentVolumeSource) { c.NodeStageSecretRef = secret },
		"nodePublishSecretRef":       func(c *core.CSIPersistentVolumeSource) { c.NodePublishSecretRef = secret },
		"controllerExpandSecretRef":  func(c *core.CSIPersistentVolumeSource) { c.ControllerExpandSecretRef = secret },
		"nodeExpandSecretRef":        func(c *core.CSIPersistentVolumeSource) { c.NodeExpandSecretRef = secret },
	} {
		with := func() *core.PersistentVolume { return but(func(pv *core.PersistentVolume) { change(pv.Spec.CSI) }) }
		list = append(list,
			request{name: "create a volume with a " + name, now: with(), refused: "no volume that refers to a Secret"},
			request{name: "add a " + name, before: volume("node-1"), now: with(), refused: mayOnly},
			request{name: "add a " + name + " in an expansion", before: volume("node-1"), now: sized(with()), refused: mayOnly},
			request{name: "add a " + name + " and a finalizer", before: volume("node-1"), now: held(with()), refused: mayOnly})
	}
	return list
}

// changes are what an expansion must not bring along.
func changes() (list []request) {
	for name, change := range map[string]func(*core.PersistentVolumeSpec){
		"access modes":  func(s *core.PersistentVolumeSpec) { s.AccessModes = nil },
		"claim":         func(s *core.PersistentVolumeSpec) { s.ClaimRef.Name = "other" },
		"handle":        func(s *core.PersistentVolumeSpec) { s.CSI.VolumeHandle = otherUUID + "/" + volumeName },
		"mount options": func(s *core.PersistentVolumeSpec) { s.MountOptions = nil },
		"reclaim policy": func(s *core.PersistentVolumeSpec) {
			s.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
		},
		"class":            func(s *core.PersistentVolumeSpec) { s.StorageClassName = "other" },
		"attributes class": func(s *core.PersistentVolumeSpec) { class := "x"; s.VolumeAttributesClassName = &class },
		"volume mode":      func(s *core.PersistentVolumeSpec) { s.VolumeMode = nil },
		"resources":        func(s *core.PersistentVolumeSpec) { s.Capacity["iops"] = resource.MustParse("1") },
	} {
		now := sized(volume("node-1"))
		change(&now.Spec)
		list = append(list, request{name: "enlarge its volume and change its " + name, before: volume("node-1"), now: now, refused: mayOnly})
	}
	return list
}

// TestExpansionComparesAllFields: an expansion must not change a field that Kubernetes adds to volumes.
func TestExpansionComparesAllFields(t *testing.T) {
	policy := shippedPolicy(t, "nodelvm-node-restriction")
	var rule string
	for _, v := range policy.Spec.Variables {
		if v.Name == "resizesVolume" {
			rule = v.Expression
		}
	}
	spec := reflect.TypeFor[core.PersistentVolumeSpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "capacity" && !strings.Contains(rule, "object.spec.?"+name+" == oldObject.spec.?"+name) {
			t.Errorf("an expansion may change spec.%s", name)
		}
	}
}
