package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// snapshot holds the fields that this package reads of a VolumeSnapshot.
type snapshot struct {
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
func (s *snapshot) DeepCopyObject() runtime.Object {
	other := *s
	s.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// snapshotClass holds the fields that this package reads of a VolumeSnapshotClass.
type snapshotClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Driver string `json:"driver"`
}

// DeepCopyObject implements runtime.Object.
func (s *snapshotClass) DeepCopyObject() runtime.Object {
	other := *s
	s.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// snapshot reads a VolumeSnapshot; nil: it does not exist.
func (c *Client) snapshot(ctx context.Context, namespace, name string) (*snapshot, error) {
	var s snapshot
	there, err := get(ctx, c.snapshots, "volumesnapshots", namespace, name, &s)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s/%s: %w", namespace, name, err)
	}
	if !there {
		return nil, nil
	}
	return &s, nil
}
