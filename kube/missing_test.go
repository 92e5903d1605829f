package kube

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// boundVolume is the PersistentVolume of a claim of kubetest on a node.
func boundVolume(name, claim, driver, node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: kubetest.TestVG + "/" + name,
		VolumeAttributes: map[string]string{api.AttributeUUID: "uuid-of-" + name, api.AttributeVolumeGroup: "vg-data"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim, UID: kubetest.Claim(claim, "", name).UID}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	return pv
}

// TestMissingVolumes: the volumes of this node's claims that its disks do not show come from their PersistentVolumes, also while a
// disk cannot be read. Each is read once, and not while the disks show it.
func TestMissingVolumes(t *testing.T) {
	volumes := map[string]*corev1.PersistentVolume{
		"pvc-1":  boundVolume("pvc-1", "data", api.DriverName, "node-1"),
		"pvc-2":  boundVolume("pvc-2", "there", api.DriverName, "node-1"),
		"pvc-3":  boundVolume("pvc-3", "other", "other.io", "node-1"),
		"pvc-4":  boundVolume("pvc-4", "elsewhere", api.DriverName, "node-2"),
		"byhand": boundVolume("byhand", "adopted", api.DriverName, "node-1"),
	}
	answers := map[string]any{}
	for name, pv := range volumes {
		answers["GET /api/v1/persistentvolumes/"+name] = pv
	}
	client, sent := kubetest.RecordedClient(t, answers)
	held := lvm.ManagedVolumes{Owned: []lvm.ManagedVolume{{Volume: lvm.Volume{Name: "pvc-2"}}}, Unread: []string{"/dev/sdb could not be read: input/output error"}}
	agent := NewAgent(Config{Client: client, Node: "node-1", Holdings: func(context.Context) (lvm.ManagedVolumes, error) { return held, nil }})
	for claim, volume := range map[string]string{"data": "pvc-1", "there": "pvc-2", "other": "pvc-3", "elsewhere": "pvc-4", "adopted": "byhand"} {
		c := kubetest.Claim(claim, "local", volume)
		if claim != "adopted" {
			c.Annotations = map[string]string{api.AnnotationSelectedNode: "node-1"}
		}
		must(t, agent.claims.Add(c))
	}
	check := func(what string, wantReads int, want ...lvm.Volume) {
		t.Helper()
		before := len(sent())
		must(t, agent.lookForMissing(t.Context()))
		if got, reads := agent.MissingVolumes(), len(sent())-before; !slices.Equal(got, want) || reads != wantReads {
			t.Fatalf("%s: after %d reads %+v, want %+v after %d", what, reads, got, want, wantReads)
		}
	}
	data := lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "pvc-1"}, UUID: "uuid-of-pvc-1", Name: "pvc-1", Claim: "ns/data", Group: "vg-data"}
	adopted := lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "byhand"}, UUID: "uuid-of-byhand", Name: "byhand", Claim: "ns/adopted", Group: "vg-data"}
	check("at first", 3, data)
	check("later", 0, data)
	agent.rememberUnchosen(volumes["byhand"])
	check("a volume that the audit saw", 0, adopted, data)
	must(t, agent.claims.Delete(kubetest.Claim("data", "local", "pvc-1")))
	check("its claim is deleted", 0, adopted)
}
