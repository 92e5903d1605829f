package pending

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// SnapshotOf returns the name of the VolumeSnapshot in the claim's own namespace that the claim is restored from; "": none.
func SnapshotOf(claim *corev1.PersistentVolumeClaim) string {
	return sourceNamed(claim, api.SnapshotGroup, "VolumeSnapshot")
}

// ClonedFrom returns the name of the claim in the same namespace that a claim is cloned from; "": none.
func ClonedFrom(claim *corev1.PersistentVolumeClaim) string {
	return sourceNamed(claim, "", "PersistentVolumeClaim")
}

// sourceNamed reads dataSourceRef alone: the API server sets dataSource to the same.
func sourceNamed(claim *corev1.PersistentVolumeClaim, group, kind string) string {
	ref := claim.Spec.DataSourceRef
	if ref == nil || isElsewhere(claim) || ref.Kind != kind || groupOfSource(ref) != group {
		return ""
	}
	return ref.Name
}

func groupOfSource(ref *corev1.TypedObjectReference) string {
	if ref.APIGroup == nil {
		return ""
	}
	return *ref.APIGroup
}

// isElsewhere reports whether a claim with a dataSourceRef names a source in another namespace.
func isElsewhere(claim *corev1.PersistentVolumeClaim) bool {
	namespace := claim.Spec.DataSourceRef.Namespace
	return namespace != nil && *namespace != "" && *namespace != claim.Namespace
}

// IsBoundByOthers reports whether csi-provisioner creates no volume for the claim, because a volume populator fills one for it, or because
// it has a selector and waits for an existing volume (Velero sets one while it restores a claim's data).
func IsBoundByOthers(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.Selector != nil || claim.Spec.DataSourceRef != nil && SnapshotOf(claim) == "" && ClonedFrom(claim) == ""
}

// LostSource reports whether a claim was created with a data source that it does not have. The API server drops a dataSourceRef to another
// namespace, unless its feature gate CrossNamespaceVolumeDataSource is on, and a dataSource of a kind that only dataSourceRef may name. It
// accepts the claim, whose volume would be empty. metadata.managedFields shows what its creator set. Entries that are older than the claim do not
// count: a program that restores objects, such as Velero, writes those of the claim that was backed up, and fills the volume itself.
func LostSource(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.VolumeName != "" || claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return false
	}
	return slices.ContainsFunc(claim.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.Subresource != "" || entry.FieldsV1 == nil || ofEarlierClaim(entry, claim) || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		return fields.Spec["f:dataSourceRef"] != nil || fields.Spec["f:dataSource"] != nil
	})
}

// createTime is more than the API server takes between the time that it notes for an entry and that of the claim's creation: it calls admission
// webhooks in between, and ends such a request after 34 s (k8s.io/apiserver, pkg/endpoints/handlers/rest.go, requestTimeoutUpperBound).
const createTime = time.Minute

// ofEarlierClaim reports whether an entry of managedFields was written before the claim was created.
func ofEarlierClaim(entry metav1.ManagedFieldsEntry, claim *corev1.PersistentVolumeClaim) bool {
	return entry.Time != nil && entry.Time.Add(createTime).Before(claim.CreationTimestamp.Time)
}

// SourceLost says what LostSource means, and what to do.
var SourceLost = Cause{"the claim was created with a data source that the API server dropped, so its volume would be empty. The API server drops a source in another namespace " +
	"(dataSourceRef.namespace), and one in dataSource that is neither a VolumeSnapshot nor a claim",
	"delete the claim, and create it in the namespace of its source, or with dataSourceRef instead of dataSource"}

// sourceCauses are about where the claim's data comes from, and about who creates its volume.
func sourceCauses(f Facts) []Cause {
	switch s := f.Source; {
	case LostSource(&f.Claim):
		return []Cause{SourceLost}
	case IsBoundByOthers(&f.Claim):
		return []Cause{bindingCause(&f.Claim)}
	case s == nil:
		return nil
	case s.Foreign != "":
		return []Cause{{fmt.Sprintf("the claim's source, %s %s, has a volume of the driver %s, and nodelvm copies only its own volumes", s.Kind, s.Name, s.Foreign),
			"delete the claim, and create it with a StorageClass of that driver, or without a source: a pod that uses both claims can copy the data"}}
	case s.Missing:
		return []Cause{{fmt.Sprintf("the claim's source, %s %s, does not exist", s.Kind, s.Name), "create it, or create the claim again with another dataSource"}}
	case s.NotReady:
		return []Cause{{fmt.Sprintf("the claim's source, %s %s, is not ready", s.Kind, s.Name), fmt.Sprintf("kubectl -n %s describe %s %s", f.Claim.Namespace, strings.ToLower(s.Kind), s.Name)}}
	}
	return nil
}

// bindingCause is about a claim for which csi-provisioner creates no volume.
func bindingCause(claim *corev1.PersistentVolumeClaim) Cause {
	if claim.Spec.Selector != nil {
		return Cause{fmt.Sprintf("the claim has a selector (%s): csi-provisioner creates no volume for it, and it waits for a PersistentVolume with these labels", metav1.FormatLabelSelector(claim.Spec.Selector)),
			"create the claim again without a selector, unless a restore has set it: then read the log of that"}
	}
	ref := claim.Spec.DataSourceRef
	kind := strings.TrimSuffix(ref.Kind+"."+groupOfSource(ref), ".")
	if isElsewhere(claim) {
		return Cause{fmt.Sprintf("the claim's source, %s %s, is in the namespace %s: nodelvm copies only within a namespace", kind, ref.Name, *ref.Namespace),
			fmt.Sprintf("create the claim in the namespace %s, or move the snapshot: docs/howto/snapshots.md", *ref.Namespace)}
	}
	return Cause{fmt.Sprintf("a volume populator has to create the volume, from %s %s: csi-provisioner creates none for the claim", kind, ref.Name),
		fmt.Sprintf("read the events of the claim, and the log of the populator; if none for %s runs in the cluster, install it", cmp.Or(kind, "that kind"))}
}
