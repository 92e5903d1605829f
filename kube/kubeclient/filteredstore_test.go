package kubeclient

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

func storeOfClasses(changed func(key string, items []string)) *FilteredStore[string] {
	return &FilteredStore[string]{Key: KeyOfObject, Changed: changed, Keep: func(o any) (string, bool) {
		pv, ok := o.(*corev1.PersistentVolume)
		return pv.Spec.StorageClassName, ok
	}}
}

func ofClass(name, class string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{StorageClassName: class}}
}

// TestChangesHaveFormerItemFirst: an event and a complete list both pass on the former item, then the present one.
func TestChangesHaveFormerItemFirst(t *testing.T) {
	var got []string
	s := storeOfClasses(func(_ string, items []string) { got = items })
	for _, step := range []struct {
		what  string
		do    func() error
		items []string
	}{
		{"a first list", func() error { return s.Replace([]any{ofClass("a", "one")}, "") }, []string{"one"}},
		{"an event", func() error { return s.Update(ofClass("a", "two")) }, []string{"one", "two"}},
		{"another list", func() error { return s.Replace([]any{ofClass("a", "three")}, "") }, []string{"two", "three"}},
		{"a list without it", func() error { return s.Replace(nil, "") }, []string{"three"}},
	} {
		if err := step.do(); err != nil || !slices.Equal(got, step.items) {
			t.Errorf("%s: %q, want %q; %v", step.what, got, step.items, err)
		}
	}
}

// TestSelection: Items returns what the function selects, in the order of the keys.
func TestSelection(t *testing.T) {
	s := storeOfClasses(func(string, []string) {})
	check.Must(t, s.Replace([]any{ofClass("d", "4"), ofClass("b", "2"), ofClass("c", "3"), ofClass("a", "1")}, ""))
	if items := s.Items(func(class string) bool { return class != "3" }); !slices.Equal(items, []string{"1", "2", "4"}) {
		t.Errorf("items %q", items)
	}
}

// TestEventIsStripped: the store keeps no more of an object from an event than of one from a list.
func TestEventIsStripped(t *testing.T) {
	s := &FilteredStore[*corev1.PersistentVolume]{
		Key: KeyOfObject, Changed: func(string, []*corev1.PersistentVolume) {},
		Keep:  func(o any) (*corev1.PersistentVolume, bool) { pv, ok := o.(*corev1.PersistentVolume); return pv, ok },
		Strip: func(o any) any { return &corev1.PersistentVolume{ObjectMeta: Names(o.(*corev1.PersistentVolume))} },
	}
	check.Must(t, s.Update(ofClass("a", "one")))
	if kept, there, _ := s.Find("a"); !there || kept.Spec.StorageClassName != "" {
		t.Errorf("kept %v", kept)
	}
}
