package kubeclient

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestListsAreCopied: a copied list of custom resources shares nothing with the original.
func TestListsAreCopied(t *testing.T) {
	labels := func() metav1.ObjectMeta { return metav1.ObjectMeta{Labels: map[string]string{"a": "b"}} }
	contents := &ContentList{Items: []Content{{ObjectMeta: labels()}}}
	groups := &GroupContentList{Items: []GroupContent{{ObjectMeta: labels()}}}
	groups.Items[0].Spec.Source.VolumeHandles = []string{"a"}
	for _, original := range []runtime.Object{contents, groups} {
		switch l := original.DeepCopyObject().(type) {
		case *ContentList:
			l.Items[0].Labels["a"] = "changed"
		case *GroupContentList:
			l.Items[0].Labels["a"] = "changed"
			l.Items[0].Spec.Source.VolumeHandles[0] = "changed"
		default:
			t.Fatalf("a copy of %T is a %T", original, l)
		}
	}
	if contents.Items[0].Labels["a"] != "b" || groups.Items[0].Labels["a"] != "b" || groups.Items[0].Spec.Source.VolumeHandles[0] != "a" {
		t.Errorf("the originals changed: %+v, %+v", contents, groups)
	}
}
