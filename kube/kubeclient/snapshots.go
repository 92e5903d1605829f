package kubeclient

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Snapshot holds the fields that this package reads of a VolumeSnapshot.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ClassName string `json:"volumeSnapshotClassName"`
	} `json:"spec"`
	Status struct {
		Content string `json:"boundVolumeSnapshotContentName"`
	} `json:"status"`
}

// DeepCopyObject implements runtime.Object.
func (s *Snapshot) DeepCopyObject() runtime.Object {
	other := *s
	s.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// SnapshotClass holds the fields that this package reads of a VolumeSnapshotClass.
type SnapshotClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Driver string `json:"driver"`
}

// DeepCopyObject implements runtime.Object.
func (s *SnapshotClass) DeepCopyObject() runtime.Object {
	other := *s
	s.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// Snapshot reads a VolumeSnapshot; nil: it does not exist.
func (c *Client) Snapshot(ctx context.Context, namespace, name string) (*Snapshot, error) {
	return Read[Snapshot](ctx, c.Snapshots, "snapshot", "volumesnapshots", namespace, name)
}
