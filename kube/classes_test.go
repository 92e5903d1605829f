package kube

import (
	"errors"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestNameThinClass: the refusal of a snapshot names a thin class of this driver, if the cluster has one. Other errors stay as they are.
func TestNameThinClass(t *testing.T) {
	a := &Agent{classes: newClassStore(func(string) {})}
	refused := lvm.Errorf(lvm.KindInvalid, "vg/data has the layout linear, and %w", lvm.ErrThick)
	if got := a.NameThinClass(refused); got.Error() != refused.Error() {
		t.Errorf("without a class: %v", got)
	}
	for name, of := range map[string][2]string{"a-linear": {api.DriverName, "linear"}, "another-driver": {"other.example", "thin"}, "fast-thin": {api.DriverName, "thin"}, "local-thin": {api.DriverName, "thin"}} {
		class := kubetest.Class(name, of[0], storagev1.VolumeBindingWaitForFirstConsumer)
		class.Parameters = map[string]string{"layout": of[1]}
		must(t, a.classes.Add(class))
	}
	got := a.NameThinClass(refused)
	if want := refused.Error() + "; for example the StorageClass fast-thin"; got.Error() != want || lvm.KindOf(got) != lvm.KindInvalid {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	other := errors.New("another error")
	if got := a.NameThinClass(other); got != other { //nolint:errorlint // the same error
		t.Errorf("another error became %v", got)
	}
	if got := a.NameThinClass(nil); got != nil {
		t.Errorf("no error became %v", got)
	}
}
