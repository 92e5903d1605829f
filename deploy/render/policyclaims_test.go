package main

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const provisioner = "volume.kubernetes.io/storage-provisioner"

// TestClaimsOfOtherClasses: a node writes only claims and capacities of the driver's classes, and claims without one. It protects the
// source of a clone whatever its class.
func TestClaimsOfOtherClasses(t *testing.T) {
	local := func(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
		class := "local"
		pvc.Spec.StorageClassName = &class
		return pvc
	}
	beta := func(class string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
		return annotated("volume.beta.kubernetes.io/storage-class", class, pvc)
	}
	const refused = "whose provisioner is other.io"
	ours, others, beside := classNamed("local", "nodelvm.io"), classNamed("local", "other.io"), classNamed("other", "other.io")
	expectAnswers(t, shippedPolicy(t, "nodelvm-volume-class"), []request{
		{name: "note an expansion", sub: "status", before: local(bound("")), now: growing(local(bound(""))), params: ours},
		{name: "note an expansion on another driver's claim", sub: "status", before: local(bound("")), now: growing(local(bound(""))), params: others, refused: refused},
		{name: "other classes do not matter", sub: "status", before: local(bound("")), now: growing(local(bound(""))), params: beside},
		{name: "note an expansion of a claim without a class", sub: "status", before: bound(""), now: growing(bound("")), params: others},
		{name: "give its claim back", before: local(claim("node-1")), now: local(claim("")), params: ours},
		{name: "give another driver's claim back", before: local(claim("node-1")), now: local(claim("")), params: others, refused: refused},
		{name: "take a copy", before: copying("VolumeSnapshot", local(claim(""))), now: copying("VolumeSnapshot", local(claim("node-1"))), params: ours},
		{name: "take another driver's copy", before: copying("VolumeSnapshot", local(claim(""))), now: copying("VolumeSnapshot", local(claim("node-1"))), params: others, refused: refused},
		{name: "take another driver's copy by the old annotation", before: beta("local", copying("VolumeSnapshot", claim(""))), now: beta("local", copying("VolumeSnapshot", claim("node-1"))), params: others, refused: refused},
		{name: "take a copy by the old annotation, whose field says otherwise", before: beta("ours", copying("VolumeSnapshot", local(claim("")))), now: beta("ours", copying("VolumeSnapshot", local(claim("node-1")))), params: others},
		{name: "publish its capacity", now: capacity("node-1"), params: ours},
		{name: "publish capacity for another driver's class", now: capacity("node-1"), params: others, refused: refused},
		{name: "update what it published for another driver's class", before: capacity("node-1"), now: capacity("node-1"), params: others, refused: refused},
		{name: "publish its capacity beside another driver's class", now: capacity("node-1"), params: beside},
		{name: "protect the source of a copy", before: local(bound("")), now: finalized(cloning, local(bound(""))), params: others},
		{name: "protect, and annotate", before: local(bound("")), now: annotated("a", "b", finalized(cloning, local(bound("")))), params: others, refused: refused},
		{name: "protect by way of the status", sub: "status", before: local(bound("")), now: finalized(cloning, local(bound(""))), params: others, refused: refused},
	})
}

// TestClassField: whoever creates it, a claim of a class of the driver has the class in its spec. The policy ignores other drivers' claims.
func TestClassField(t *testing.T) {
	of := func(class string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
		pvc.Spec.StorageClassName = &class
		return pvc
	}
	old := func(class string) *core.PersistentVolumeClaim {
		return annotated("volume.beta.kubernetes.io/storage-class", class, claim(""))
	}
	bound := func(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
		pvc.Spec.VolumeName = "pv"
		return pvc
	}
	ours := classNamed("local", "nodelvm.io")
	requests := []request{
		{name: "in the spec", now: of("local", claim("")), params: ours},
		{name: "no class", now: claim(""), params: ours},
		{name: "in the annotation alone", now: old("local"), params: ours, refused: "write the class local in spec.storageClassName"},
		{name: "in both", now: of("local", old("local")), params: ours},
		{name: "an empty class in the spec", now: of("", old("local")), params: ours},
		{name: "another class in the annotation", now: old("other"), params: ours},
		{name: "another driver's class in the annotation", now: old("local"), params: classNamed("local", "other.io")},
		{name: "a volume's name and the annotation alone", now: bound(old("local")), params: ours},
	}
	for i := range requests {
		requests[i].user, requests[i].node = "system:serviceaccount:demo:tenant", "-"
	}
	expectAnswers(t, shippedPolicy(t, "nodelvm-class-field"), requests)
}

// claimRequests are what is written of PersistentVolumeClaims.
func claimRequests() []request {
	return []request{
		{name: "give its claim back", before: claim("node-1"), now: claim("")},
		{name: "set a finalizer on its claim", before: claim("node-1"), now: claim("node-1")},
		{name: "note an expansion", sub: "status", before: bound("node-1"), now: growing(bound("node-1"))},
		{name: "note an expansion of a block volume", sub: "status", before: growing(raw(bound("node-1"))), now: annotated(noExpansion, "true", raw(bound("node-1")))},
		{name: "note an expansion of a claim that was bound by hand", sub: "status", before: bound(""), now: growing(bound(""))},
		{name: "note an expansion of a claim that was bound to another claim's volume", sub: "status", before: rebound("node-2"), now: growing(rebound("node-2"))},
		{name: "take a claim whose source it has", before: copying("VolumeSnapshot", claim("")), now: copying("VolumeSnapshot", claim("node-1"))},
		{name: "take such a claim over", before: copying("PersistentVolumeClaim", claim("node-2")), now: copying("PersistentVolumeClaim", claim("node-1"))},
		{name: "protect the source of a copy", before: claim("node-2"), now: finalized(cloning, claim("node-2"))},
		{name: "give the source of a copy free", before: finalized(cloning, claim("")), now: claim("")},
		{name: "have csi-provisioner look again", before: claim("node-1"), now: annotated(reminded, "now", claim("node-1"))},
		{name: "note the size of a block volume", sub: "status", before: raw(bound("node-1")), now: holding("2Gi", raw(bound("node-1")))},

		{name: "note the size of before when less is requested", sub: "status", before: allocated("4Gi", raw(bound("node-1"))), now: allocated("4Gi", holding("4Gi", raw(bound("node-1"))))},
		{name: "note less when the size of before was infeasible", sub: "status", before: allocated("4Gi", bound("node-1")), now: allocated("2Gi", bound("node-1"))},

		{name: "note that an expansion is not possible", sub: "status", before: growing(bound("node-1")), now: inState(core.PersistentVolumeClaimControllerResizeInfeasible, growing(bound("node-1")))},
		{name: "leave the file system to the kubelet", sub: "status", before: growing(bound("node-1")), now: inState(core.PersistentVolumeClaimNodeResizePending, growing(bound("node-1")))},
		{name: "note a condition while the kubelet resizes", sub: "status", before: inState(core.PersistentVolumeClaimNodeResizeInProgress, bound("node-1")), now: inState(core.PersistentVolumeClaimNodeResizeInProgress, growing(bound("node-1")))},

		{name: "return a claim to the scheduler whose selected node does not exist", before: provisioned(claim("node-9")), now: provisioned(claim(""))},

		{name: "return a claim of another driver to the scheduler", before: annotated(provisioner, "other.io", claim("node-9")), now: annotated(provisioner, "other.io", claim("")), refused: mayOnly},
		{name: "return a bound claim to the scheduler", before: provisioned(bound("node-9")), now: unselected(provisioned(bound("node-9"))), refused: mayOnly},
		{name: "return a claim to the scheduler, and annotate it", before: provisioned(claim("node-9")), now: annotated("a", "b", provisioned(claim(""))), refused: mayOnly},
		{name: "return a claim to the scheduler, and make csi-provisioner retry", before: provisioned(claim("node-9")), now: annotated(reminded, "now", provisioned(claim(""))), refused: mayOnly},
		{name: "update another node's claim", before: claim("node-2"), now: claim(""), refused: mayOnly},
		{name: "take a claim without a selected node", before: claim(""), now: claim("node-1"), refused: mayOnly},
		{name: "take another node's claim", before: claim("node-2"), now: claim("node-1"), refused: mayOnly},
		{name: "take a claim that another populates", before: copying("Recipe", claim("")), now: copying("Recipe", claim("node-1")), refused: mayOnly},
		{name: "give a copy to another node", before: copying("VolumeSnapshot", claim("")), now: copying("VolumeSnapshot", claim("node-2")), refused: mayOnly},
		{name: "take a copy that is bound", before: copying("VolumeSnapshot", bound("node-2")), now: copying("VolumeSnapshot", bound("node-1")), refused: mayOnly},
		{name: "take a copy and a note with it", before: copying("VolumeSnapshot", claim("")), now: annotated("a", "b", copying("VolumeSnapshot", claim("node-1"))), refused: mayOnly},
		{name: "take a copy and its protection away", before: finalized("kubernetes.io/pvc-protection", copying("VolumeSnapshot", claim(""))), now: copying("VolumeSnapshot", claim("node-1")), refused: mayOnly},
		{name: "take a copy and another source", before: copying("VolumeSnapshot", claim("")), now: copying("PersistentVolumeClaim", claim("node-1")), refused: mayOnly},
		{name: "note an expansion of another node's claim", sub: "status", before: bound("node-2"), now: growing(bound("node-2")), refused: mayOnly},
		{name: "note an expansion by way of another volume", sub: "status", before: bound("node-2"), now: growing(rebound("node-2")), refused: mayOnly},
		{name: "note more than a claim requests", sub: "status", before: bound(""), now: allocated("1Pi", bound("")), refused: mayOnly},
		{name: "note still more after less is requested", sub: "status", before: allocated("4Gi", bound("node-1")), now: allocated("5Gi", bound("node-1")), refused: mayOnly},
		{name: "note another resource", sub: "status", before: bound("node-1"), now: allocating("cpu", "1", bound("node-1")), refused: mayOnly},
		{name: "note that the kubelet resizes", sub: "status", before: bound("node-1"), now: inState(core.PersistentVolumeClaimNodeResizeInProgress, growing(bound("node-1"))), refused: mayOnly},
		{name: "note that the kubelet cannot resize", sub: "status", before: bound(""), now: inState(core.PersistentVolumeClaimNodeResizeInfeasible, bound("")), refused: mayOnly},
		{name: "note a state that Kubernetes does not know", sub: "status", before: bound("node-1"), now: inState("Stuck", bound("node-1")), refused: mayOnly},
		{name: "note the state of another resource", sub: "status", before: bound("node-1"), now: expanding("cpu", core.PersistentVolumeClaimNodeResizePending, bound("node-1")), refused: mayOnly},
		{name: "note an expansion of a claim that another driver provisioned", sub: "status", before: annotated(provisioner, "other.io", bound("")), now: growing(annotated(provisioner, "other.io", bound(""))), refused: mayOnly},
		{name: "note an expansion of a claim without a volume", sub: "status", before: claim("node-1"), now: growing(claim("node-1")), refused: mayOnly},
		{name: "call a claim lost", sub: "status", before: bound("node-1"), now: lost(bound("node-1")), refused: mayOnly},
		{name: "annotate by way of the status", sub: "status", before: bound("node-1"), now: annotated("a", "b", bound("node-1")), refused: mayOnly},
		{name: "move a claim by way of the status", sub: "status", before: bound("node-1"), now: bound("node-2"), refused: mayOnly},
		{name: "finalize by way of the status", sub: "status", before: bound("node-1"), now: finalized("a/b", bound("node-1")), refused: mayOnly},
		{name: "take away other finalizers of a claim", before: finalized("kubernetes.io/pvc-protection", claim("node-2")), now: claim("node-2"), refused: mayOnly},
		{name: "make a claim", now: claim("node-1"), refused: mayOnly},
		{name: "remove its claim", before: claim("node-1"), refused: mayOnly},
		{name: "give a bound claim back", before: bound("node-1"), now: unselected(bound("node-1")), refused: mayOnly},
		{name: "hand its claim to another node", before: claim("node-1"), now: claim("node-2"), refused: mayOnly},
		{name: "annotate its claim", before: claim("node-1"), now: annotated("a", "b", claim("node-1")), refused: mayOnly},
		{name: "label its claim", before: claim("node-1"), now: labelledClaim(claim("node-1")), refused: mayOnly},
		{name: "bind its claim", before: claim("node-1"), now: bound("node-1"), refused: mayOnly},
		{name: "ask for more in its claim", before: claim("node-1"), now: asking("3Gi", claim("node-1")), refused: mayOnly},
		{name: "ask for more while giving back", before: claim("node-1"), now: asking("3Gi", claim("")), refused: mayOnly},
		{name: "finalize its claim", before: claim("node-1"), now: finalized("a/b", claim("node-1")), refused: mayOnly},
		{name: "note the size of a file system", sub: "status", before: bound("node-1"), now: holding("2Gi", bound("node-1")), refused: mayOnly},
		{name: "note another condition", sub: "status", before: bound("node-1"), now: failing("ModifyVolumeError", bound("node-1")), refused: mayOnly},
		{name: "take another condition away", sub: "status", before: failing("ModifyVolumeError", bound("node-1")), now: growing(bound("node-1")), refused: mayOnly},
		{name: "note a class of attributes", sub: "status", before: bound("node-1"), now: modified(bound("node-1")), refused: mayOnly},
		{name: "take a copy of another group's kind", before: fromGroup("other.io", claim("")), now: fromGroup("other.io", claim("node-1")), refused: mayOnly},
	}
}

func claim(node string) *core.PersistentVolumeClaim {
	pvc := asking("2Gi", &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "data", Namespace: "demo", UID: "1"}})
	if node != "" {
		pvc.Annotations = map[string]string{selectedNode: node}
	}
	return pvc
}

func bound(node string) *core.PersistentVolumeClaim {
	pvc := claim(node)
	pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-1", core.ClaimBound
	return pvc
}

// provisioned is a claim that Kubernetes has assigned to this driver.
func provisioned(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	return annotated(provisioner, "nodelvm.io", pvc)
}

// rebound is bound to a volume that was created for another claim, as a volume populator does.
func rebound(node string) *core.PersistentVolumeClaim {
	pvc := bound(node)
	pvc.Spec.VolumeName = "pvc-2"
	return pvc
}

func lost(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.Phase = core.ClaimLost
	return pvc
}

// growing notes an expansion.
func growing(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc = inState(core.PersistentVolumeClaimControllerResizeInProgress, allocated("2Gi", pvc))
	pvc.Status.Conditions = []core.PersistentVolumeClaimCondition{{Type: core.PersistentVolumeClaimResizing, Status: core.ConditionTrue}}
	return pvc
}

// inState notes how far an expansion is.
func inState(state core.ClaimResourceStatus, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	return expanding(core.ResourceStorage, state, pvc)
}

func expanding(name core.ResourceName, state core.ClaimResourceStatus, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.AllocatedResourceStatuses = map[core.ResourceName]core.ClaimResourceStatus{name: state}
	return pvc
}

// allocated notes the size that an expansion has to reach.
func allocated(size string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	return allocating(core.ResourceStorage, size, pvc)
}

func allocating(name core.ResourceName, amount string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.AllocatedResources = core.ResourceList{name: resource.MustParse(amount)}
	return pvc
}

// copying gives the claim a source.
func copying(kind string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Spec.DataSourceRef = &core.TypedObjectReference{Kind: kind, Name: "source"}
	if kind != "PersistentVolumeClaim" {
		group := "snapshot.storage.k8s.io"
		pvc.Spec.DataSourceRef.APIGroup = &group
	}
	return pvc
}

func annotated(key, value string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	if pvc.Annotations == nil {
		pvc.Annotations = map[string]string{}
	}
	pvc.Annotations[key] = value
	return pvc
}

func finalized(finalizer string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Finalizers = append(pvc.Finalizers, finalizer)
	return pvc
}

func raw(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	mode := core.PersistentVolumeBlock
	pvc.Spec.VolumeMode = &mode
	return pvc
}

func unselected(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	delete(pvc.Annotations, selectedNode)
	return pvc
}

func labelledClaim(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Labels = map[string]string{"a": "b"}
	return pvc
}

func asking(size string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Spec.Resources.Requests = core.ResourceList{core.ResourceStorage: resource.MustParse(size)}
	return pvc
}

func holding(size string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.Capacity = core.ResourceList{core.ResourceStorage: resource.MustParse(size)}
	return pvc
}

func failing(condition core.PersistentVolumeClaimConditionType, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.Conditions = []core.PersistentVolumeClaimCondition{{Type: condition, Status: core.ConditionTrue}}
	return pvc
}

func modified(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	class := "fast"
	pvc.Status.CurrentVolumeAttributesClassName = &class
	return pvc
}

func fromGroup(group string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc = copying("VolumeSnapshot", pvc)
	pvc.Spec.DataSourceRef.APIGroup = &group
	return pvc
}
