package kubeclient

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
)

// GroupSnapshotVersion is that of the group snapshot objects (KEP-3476).
var GroupSnapshotVersion = schema.GroupVersion{Group: api.GroupSnapshotGroup, Version: "v1"}

// KindGroupContent is the kind of GroupContent.
const KindGroupContent = "VolumeGroupSnapshotContent"

// GroupContent holds the fields that this package reads of a VolumeGroupSnapshotContent.
type GroupContent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Driver         string `json:"driver"`
		DeletionPolicy string `json:"deletionPolicy"`
		Source         struct {
			VolumeHandles []string `json:"volumeHandles"`
			Existing      struct {
				GroupSnapshotHandle string   `json:"volumeGroupSnapshotHandle"`
				SnapshotHandles     []string `json:"volumeSnapshotHandles"`
			} `json:"groupSnapshotHandles"`
		} `json:"source"`
		GroupSnapshotRef struct {
			UID types.UID `json:"uid"`
		} `json:"volumeGroupSnapshotRef"`
	} `json:"spec"`
	Status struct {
		GroupSnapshotHandle string `json:"volumeGroupSnapshotHandle"`
		ReadyToUse          bool   `json:"readyToUse"`
		Error               struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// GroupContentList is a VolumeGroupSnapshotContentList.
type GroupContentList = listOf[GroupContent, *GroupContent]

// DeepCopyObject implements runtime.Object.
func (c *GroupContent) DeepCopyObject() runtime.Object {
	other := *c
	c.DeepCopyInto(&other.ObjectMeta)
	other.Spec.Source.VolumeHandles = slices.Clone(c.Spec.Source.VolumeHandles)
	other.Spec.Source.Existing.SnapshotHandles = slices.Clone(c.Spec.Source.Existing.SnapshotHandles)
	return &other
}
