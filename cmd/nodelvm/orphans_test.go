package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

func TestOrphansArePrinted(t *testing.T) {
	found := []kube.Orphan{{
		ManagedVolume: lvm.ManagedVolume{Volume: lvm.Volume{ID: lvm.ID{VG: "u", LV: "pvc-1"}, Group: "vg", Size: lvm.GiB, Claim: "shop/data"}},
		Reason:        report.ReasonAbandoned, Why: "its claim now uses another volume",
	}}
	var table, rows, none bytes.Buffer
	must(t, printOrphans(&table, found, nil))
	for _, want := range []string{"FORMER CLAIM", "abandoned  vg/pvc-1  1 GiB  shop/data     its claim"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if err := printOrphansJSON(&rows, found); err != nil || !strings.Contains(rows.String(), `"size": 1073741824`) || !strings.Contains(rows.String(), `"handle": "u/pvc-1"`) ||
		!strings.Contains(rows.String(), `"formerClaim": "shop/data"`) {
		t.Errorf("%v: %s", err, rows.String())
	}
	if err := printOrphansJSON(&none, nil); err != nil || none.String() != "[]\n" {
		t.Errorf("nothing is printed as %q: %v", none.String(), err)
	}
}

// TestOrphansOfUnreadGroup: what cannot be read may have orphans: the command does not say that there are none.
func TestOrphansOfUnreadGroup(t *testing.T) {
	unread := []string{"the metadata of volume group vg-b cannot be read: checksum"}
	found := []kube.Orphan{{ManagedVolume: lvm.ManagedVolume{Volume: lvm.Volume{ID: lvm.ID{VG: "u", LV: "pvc-1"}, Group: "vg-a"}}, Reason: report.ReasonUnreferenced}}
	for name, c := range map[string]struct {
		found  []kube.Orphan
		unread []string
		says   string
	}{
		"none":            {nil, nil, "No orphans"},
		"none, and more?": {nil, unread, ""},
		"one, and more?":  {found, unread, "vg-a/pvc-1"},
	} {
		var out bytes.Buffer
		err := printOrphans(&out, c.found, c.unread)
		if (c.unread == nil) != (err == nil) || err != nil && !strings.Contains(err.Error(), unread[0]) || !strings.Contains(out.String(), c.says) || c.says == "" && out.Len() > 0 {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

func TestAdoptRefusesArguments(t *testing.T) {
	for name, c := range map[string]struct {
		o       adoptOptions
		volumes []string
	}{
		"nothing":             {adoptOptions{policy: "Retain"}, nil},
		"two":                 {adoptOptions{policy: "Retain"}, []string{"vg/a", "vg/b"}},
		"all and one":         {adoptOptions{policy: "Retain", all: true}, []string{"vg/a"}},
		"all with tags":       {adoptOptions{policy: "Retain", all: true, tag: true}, nil},
		"all for one claim":   {adoptOptions{policy: "Retain", all: true, claim: "a/b"}, nil},
		"a raw file system":   {adoptOptions{policy: "Retain", block: true, fsType: "xfs"}, []string{"vg/a"}},
		"a policy of its own": {adoptOptions{policy: "Recycle"}, []string{"vg/a"}},
	} {
		if err := c.o.check(c.volumes); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := (&adoptOptions{policy: "Delete"}).check([]string{"vg/a"}); err != nil {
		t.Error(err)
	}
}

// TestAdminCommandUsesDriverCluster: what an admin runs in the driver's container takes the volumes for its own that the driver does.
func TestAdminCommandUsesDriverCluster(t *testing.T) {
	t.Setenv("CLUSTER_ID", "the-old-one")
	for _, args := range [][]string{{"serve"}, {"orphans"}, {"adopt"}} {
		command, _, err := rootCommand().Find(args)
		must(t, err)
		if got := command.Flag("cluster-id").Value.String(); got != "the-old-one" {
			t.Errorf("%s works for the cluster %q", args[0], got)
		}
	}
}

// TestVolumeName: nodes are often alike, and a PersistentVolume of the name that another node's volume has already would bind
// its claim to that one.
func TestVolumeName(t *testing.T) {
	for lv, want := range map[string]string{"data": "vg-data-", "Data": "adopted-", "a_b": "adopted-", "a..b": "adopted-", ".a": "adopted-"} {
		got := volumeName("node-1", "vg", lv)
		if wrong := validation.IsDNS1123Subdomain(got); !strings.HasPrefix(got, want) || len(wrong) > 0 {
			t.Errorf("%s is called %s: %q", lv, got, wrong)
		}
		if other := volumeName("node-2", "vg", lv); other == got || got != volumeName("node-1", "vg", lv) {
			t.Errorf("%s is called %s, on another node %s", lv, got, other)
		}
	}
	if volumeName("n", "vg-a", "b") == volumeName("n", "vg", "a-b") {
		t.Error("two volumes of one node have one name")
	}
}

// TestAdoptRefusesVolumeOfAPersistentVolume, whatever its name, and no other volume.
func TestAdoptRefusesVolumeOfAPersistentVolume(t *testing.T) {
	held := lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "old"}, UUID: "u", Group: "vg", Name: "old"}
	pv := corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName, VolumeHandle: held.ID.String()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		kubetest.Reply(w, http.StatusOK, &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}, Items: []corev1.PersistentVolume{pv}})
	}))
	client := kubetest.ClientOf(t, server)
	a := adminSession{client: client}
	if err := a.unheld(t.Context(), held); !strings.Contains(fmt.Sprint(err), "vg/old has the PersistentVolume by-hand already") {
		t.Errorf("of a volume that has one: %v", err)
	}
	other := held
	other.ID.LV = "another"
	if err := a.unheld(t.Context(), other); err != nil {
		t.Errorf("of another volume: %v", err)
	}
}

// TestAdoptRefusesVolumeThatMoves: the drivers of both nodes create its PersistentVolume again.
func TestAdoptRefusesVolumeThatMoves(t *testing.T) {
	for name, v := range map[string]lvm.Volume{"held": {State: lvm.StateMoving}, "switched": {State: lvm.StateReady, Record: "{}"}} {
		if err := notMoving(v); !strings.Contains(fmt.Sprint(err), "is moving to another node, or came from one a moment ago") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := notMoving(lvm.Volume{State: lvm.StateMoved, Record: "{}"}); !strings.Contains(fmt.Sprint(err), "is the former copy of a volume") {
		t.Error(err)
	}
	if err := notMoving(lvm.Volume{State: lvm.StateReady}); err != nil {
		t.Error(err)
	}
}

// TestAdoptAll: who had several volumes gets none by itself.
func TestAdoptAll(t *testing.T) {
	orphan := func(lv, claim string, kind report.Reason) kube.Orphan {
		return kube.Orphan{ManagedVolume: lvm.ManagedVolume{Volume: lvm.Volume{ID: lvm.ID{VG: "u", LV: lv}, Group: "vg", Claim: claim}}, Reason: kind}
	}
	snapshot := orphan("snap", "", report.ReasonUnreferenced)
	snapshot.Snapshot = true
	found := []kube.Orphan{orphan("old", "shop/a", report.ReasonUnreferenced), orphan("one", "shop/b", report.ReasonUnreferenced), orphan("new", "shop/a", report.ReasonUnreferenced),
		orphan("x", "", report.ReasonUnreferenced), orphan("y", "", report.ReasonUnreferenced), orphan("gone", "shop/b", report.ReasonAbandoned),
		orphan("theirs", "shop/c", report.ReasonOtherCluster), snapshot}
	text, err := adoptAll(found, func(o kube.Orphan) (string, error) { return o.ID.LV + " ", nil })
	if text != "one x y " {
		t.Errorf("it prints %q", text)
	}
	if err == nil || !strings.Contains(err.Error(), "vg/new is not adopted: the claim shop/a had several volumes (vg/old, vg/new)") || !strings.Contains(err.Error(), "--claim shop/a") {
		t.Errorf("it says %v", err)
	}
}
