package kube

import (
	"errors"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

// reasons are the written events' reasons, types and messages, by the object's name.
func (a *api) reasons() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for _, e := range a.events {
		list = append(list, e.InvolvedObject.Name+" "+e.Type+" "+e.Reason+": "+e.Message)
	}
	return sorted(list)
}

func TestTroubleIsToldWhenItBeginsAndWhenItIsOver(t *testing.T) {
	server, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	if err := agent.claims.Add(claim("renamed", "thin", "pvc-2")); err != nil {
		t.Fatal(err)
	}
	near := lvm.Finding{Trouble: lvm.TroublePoolNear, Group: "vg", Text: "93 % full", Volume: lvm.Volume{UUID: "u1", Name: "pvc-1", Claim: "ns/data"}}
	rebuilding := lvm.Finding{Trouble: lvm.TroubleRebuilding, Group: "vg", Text: "5 %", Volume: lvm.Volume{UUID: "u2", Name: "pvc-2", Claim: "ns/gone"}}
	known := map[trouble]lvm.Finding{}

	server.refuse = 1 // what could not be told is told the next time
	agent.tellHealth(t.Context(), known, []lvm.Finding{near})
	agent.tellHealth(t.Context(), known, []lvm.Finding{near})
	agent.tellHealth(t.Context(), known, []lvm.Finding{near, rebuilding})
	later := near
	later.Text = "94 % full" // the same trouble
	agent.tellHealth(t.Context(), known, []lvm.Finding{later, rebuilding})
	const begun = "data Warning VolumePoolNear: 93 % full, renamed Normal VolumeRebuilding: 5 %"
	if got := server.reasons(); got != begun {
		t.Errorf("told: %s", got)
	}
	agent.tellHealth(t.Context(), known, []lvm.Finding{later})
	if got, want := server.reasons(), begun+", renamed Normal VolumeRebuildingEnded: it is over: 5 %"; got != want {
		t.Errorf("told: %s\nwant: %s", got, want)
	}
	if server.posts != 4 {
		t.Errorf("%d posts, want 4: one was refused", server.posts)
	}
}

func TestWhomTroubleConcerns(t *testing.T) {
	agent := NewAgent(Config{Client: &Client{}, Node: "node-1"})
	whole := agent.concerned(lvm.Finding{Trouble: lvm.TroubleMissing, Group: "vg"})
	if whole.Kind != "Node" || whole.Name != "node-1" {
		t.Errorf("a whole group concerns %+v", whole)
	}
	volume := agent.concerned(lvm.Finding{Volume: lvm.Volume{UUID: "u", Name: "pvc-1234", Claim: "ns/data"}})
	if volume != (corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", UID: "1234"}) {
		t.Errorf("a volume concerns %+v", volume)
	}
	if orphan := agent.concerned(lvm.Finding{Volume: lvm.Volume{UUID: "u", Name: "x"}}); orphan.Kind != "Node" {
		t.Errorf("a volume without a claim concerns %+v", orphan)
	}
}

func TestWhatCannotBeLookedUpIsNotAbsent(t *testing.T) {
	for kind, absent := range map[lvm.Kind]bool{lvm.KindNotFound: true, lvm.KindNotOurs: true, lvm.KindInternal: false, lvm.KindBusy: false} {
		here, err := found(lvm.Errorf(kind, "%w", errors.ErrUnsupported))
		if here || absent != (err == nil) {
			t.Errorf("kind %d: %v, %v", kind, here, err)
		}
	}
}
