package kube

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// reasons lists the written events' reasons, types and messages, by the object's name.
func (a *fakeAPI) reasons() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for _, e := range a.events {
		list = append(list, e.InvolvedObject.Name+" "+e.Type+" "+e.Reason+": "+e.Message)
	}
	return sorted(list)
}

func TestConditionEvents(t *testing.T) {
	server, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	must(t, agent.claims.Add(kubetest.Claim("renamed", "thin", "pvc-2")))
	near := lvm.Condition{Type: lvm.ConditionThinPoolNearlyFull, Group: "vg", Text: "93 % full", Volume: lvm.Volume{UUID: "u1", Name: "pvc-1", Claim: "ns/data"}}
	rebuilding := lvm.Condition{Type: lvm.ConditionVolumeRebuilding, Group: "vg", Text: "5 %", Volume: lvm.Volume{UUID: "u2", Name: "pvc-2", Claim: "ns/gone"}}
	known := map[condition]lvm.Condition{}

	server.refuse = 1 // the agent retries an event that it could not write
	agent.reportConditions(t.Context(), known, []lvm.Condition{near}, nil)
	agent.reportConditions(t.Context(), known, []lvm.Condition{near}, nil)
	agent.reportConditions(t.Context(), known, []lvm.Condition{near, rebuilding}, nil)
	later := near
	later.Text = "94 % full" // the same condition
	agent.reportConditions(t.Context(), known, []lvm.Condition{later, rebuilding}, nil)
	const begun = "data Warning ThinPoolNearlyFull: 93 % full, renamed Normal VolumeRebuilding: 5 %"
	if got := server.reasons(); got != begun {
		t.Errorf("events: %s", got)
	}
	agent.reportConditions(t.Context(), known, []lvm.Condition{later}, nil)
	if got, want := server.reasons(), begun+", renamed Normal VolumeRebuildingResolved: Resolved: 5 %"; got != want {
		t.Errorf("events: %s\nwant: %s", got, want)
	}
	if server.posts != 4 {
		t.Errorf("%d posts, want 4: one was refused", server.posts)
	}
}

// TestAnotherCauseIsReportedAgain: another signature on a disk is reported again, under the same event, even if the API
// server refuses the first attempt. A condition that has no cause any more is not, but its cause is, if it returns.
func TestAnotherCauseIsReportedAgain(t *testing.T) {
	server, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	found := lvm.Condition{Type: "SignatureFound", Group: "vg", Cause: "an LVM physical volume", Text: "like LVM", Volume: lvm.Volume{UUID: "u1", Name: "pvc-1", Claim: "ns/data"}}
	known := map[condition]lvm.Condition{}
	agent.reportConditions(t.Context(), known, []lvm.Condition{found}, nil)
	found.Cause, found.Text = "a btrfs file system", "like btrfs"
	server.refuse = 1
	for range 2 {
		agent.reportConditions(t.Context(), known, []lvm.Condition{found}, nil)
	}
	if got, want := server.reasons(), "data Warning SignatureFound: like btrfs"; got != want {
		t.Errorf("events: %s\nwant: %s", got, want)
	}
	agent.reportConditions(t.Context(), known, []lvm.Condition{found}, nil)
	if server.posts != 1 || server.patches != 2 {
		t.Errorf("%d posts and %d patches, want one post, and two patches of which one is refused: an unchanged signature is not reported again", server.posts, server.patches)
	}
	for _, cause := range []string{"", "a btrfs file system"} {
		found.Cause = cause
		agent.reportConditions(t.Context(), known, []lvm.Condition{found}, nil)
	}
	if server.patches != 3 {
		t.Errorf("%d patches after the cause went and returned, want 3", server.patches)
	}
}

// TestConditionIsNotResolvedWhileUnknown checks the events when a pool becomes full, when a volume that has lost its disk is destroyed, and
// when a volume is invisible for a while.
func TestConditionIsNotResolvedWhileUnknown(t *testing.T) {
	server, client := newAPI(t)
	inVG := lvm.Volume{UUID: "u1", Name: "pvc-1", Group: "vg", ID: lvm.ID{VG: kubetest.TestVG, LV: "pvc-1"}, Claim: "ns/data"}
	near := lvm.Condition{Type: lvm.ConditionThinPoolNearlyFull, Group: "vg", VG: kubetest.TestVG, Pool: "pool", Text: "93 % full"}
	full := lvm.Condition{Type: lvm.ConditionThinPoolFull, Group: "vg", VG: kubetest.TestVG, Pool: "pool", Volume: inVG, Text: "writes fail"}
	missing := lvm.Condition{Type: lvm.ConditionVolumeDataMissing, Group: "vg", VG: kubetest.TestVG, Volume: inVG, Text: "its disk is not there"}
	here := lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}, Pools: map[string]bool{kubetest.TestVG + "/pool": true},
		Volumes: map[string]lvm.VolumeScope{"u1": {Active: true}}}
	var found []lvm.Condition
	var seen lvm.HealthScope
	disks := snapshots{inVG.ID.String(): lvm.Errorf(lvm.KindConflict, "it is held for its move to another node")}
	agent := NewAgent(Config{
		Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler), Volumes: disks,
		Health:      func(context.Context) ([]lvm.Condition, error) { return found, nil },
		HealthScope: func(context.Context) (lvm.HealthScope, error) { return seen, nil },
	})
	must(t, agent.claims.Add(kubetest.Claim("data", "thin", "pvc-1")))
	known := map[condition]lvm.Condition{}
	for i, step := range []struct {
		found  []lvm.Condition
		seen   lvm.HealthScope
		events string
	}{
		{[]lvm.Condition{near}, here, "node-1 Warning ThinPoolNearlyFull: 93 % full"},
		{[]lvm.Condition{full}, here, "data Warning ThinPoolFull: writes fail, node-1 Warning ThinPoolNearlyFullWorsened: Worse: writes fail"},
		{[]lvm.Condition{missing}, lvm.HealthScope{}, "data Warning VolumeDataMissing: its disk is not there"},
		{nil, lvm.HealthScope{}, ""}, // the whole group is missing
		{nil, lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}}, ""}, // the volume moves
		{[]lvm.Condition{missing}, here, "data Warning VolumeDataMissing: its disk is not there"},
		{nil, lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}},
			"data Warning VolumeNotFound: volume " + kubetest.TestVG + "/pvc-1 is no longer in volume group vg on node node-1, although this claim is bound to it: " +
				"its data is lost unless there is a backup. Previous condition: its disk is not there"},
		{nil, here, ""},
	} {
		server.mu.Lock()
		clear(server.events)
		server.mu.Unlock()
		agent.events.Counts = map[string]kubeclient.EventCount{}
		found, seen = step.found, step.seen
		if i == 6 {
			clear(disks)
		}
		must(t, agent.checkHealth(t.Context(), known))
		if got := server.reasons(); got != step.events {
			t.Errorf("events: %s\nwant: %s", got, step.events)
		}
	}
}

func TestObjectOfConditionEvents(t *testing.T) {
	agent := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1"})
	whole := agent.concerned(lvm.Condition{Type: lvm.ConditionPhysicalVolumeMissing, Group: "vg"})
	if whole.Kind != "Node" || whole.Name != "node-1" {
		t.Errorf("a whole group concerns %+v", whole)
	}
	volume := agent.concerned(lvm.Condition{Volume: lvm.Volume{UUID: "u", Name: "pvc-1234", Claim: "ns/data"}})
	if volume != (corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", UID: "1234"}) {
		t.Errorf("a volume concerns %+v", volume)
	}
	if orphan := agent.concerned(lvm.Condition{Volume: lvm.Volume{UUID: "u", Name: "x"}}); orphan.Kind != "Node" {
		t.Errorf("a volume without a claim concerns %+v", orphan)
	}
}

func TestFailedLookupIsNotAbsence(t *testing.T) {
	for kind, absent := range map[lvm.Kind]bool{lvm.KindNotFound: true, lvm.KindNotLocal: true, lvm.KindInternal: false, lvm.KindBusy: false} {
		here, err := found(lvm.Errorf(kind, "%w", errors.ErrUnsupported))
		if here || absent != (err == nil) {
			t.Errorf("kind %d: %v, %v", kind, here, err)
		}
	}
}
