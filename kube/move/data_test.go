package move

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/move"
)

// TestParseOffer: the text is another node's word, and the class that of the cluster.
func TestParseOffer(t *testing.T) {
	offer := move.Offer{Volume: "vg/lv", Move: "1", Name: "v", Class: lvm.Class{Group: "theirs", Layout: lvm.LayoutStriped, Stripes: 2, StripeSize: 64 * lvm.KiB}, Size: 8 * lvm.MiB}
	text, err := json.Marshal(offer)
	check.Must(t, err)
	parameters := map[string]string{"volumeGroup": "ours", "layout": "striped", "stripes": "3", "mkfsOptions": "-K", "csi.storage.k8s.io/fstype": "xfs"}
	got, class, err := parseOffer(Offer{Move: "1", Text: text}, parameters)
	if err != nil || got != offer {
		t.Errorf("got %+v, %v", got, err)
	}
	if class.Group != "ours" || class.Stripes != 3 {
		t.Errorf("class %+v", class)
	}
	for what, wrong := range map[string]Offer{
		"no JSON":      {Move: "1", Text: json.RawMessage("{")},
		"too long":     {Move: "1", Text: json.RawMessage(`"` + strings.Repeat("x", maxOffer) + `"`)},
		"another move": {Move: "2", Text: text},
	} {
		if _, _, err := parseOffer(wrong, parameters); lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := parseOffer(Offer{Move: "1", Text: text}, map[string]string{"volumeGroup": "-x"}); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("a wrong group: %v", err)
	}
}

// TestOffered: a source offers only the volume that its PersistentVolume has.
func TestOffered(t *testing.T) {
	of := Offered{Name: "pvc-1", Handle: "vg/pvc-1", UUID: "lv-1", Size: lvm.GiB}
	right := move.Offer{Name: "pvc-1", Volume: "vg/pvc-1", UUID: "lv-1", Size: lvm.GiB + 4*lvm.MiB}
	if err := of.check(right); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*move.Offer){
		"name":   func(o *move.Offer) { o.Name = "pvc-2" },
		"handle": func(o *move.Offer) { o.Volume = "vg/pvc-2" },
		"UUID":   func(o *move.Offer) { o.UUID = "lv-2" },
		"size":   func(o *move.Offer) { o.Size = 3 * lvm.GiB },
	} {
		wrong := right
		change(&wrong)
		if err := of.check(wrong); lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

// receiver is the part of an engine that TestOfferOfAnotherClaim needs.
type receiver struct {
	move.Engine
	got lvm.Incoming
}

func (r *receiver) Receive(_ context.Context, in lvm.Incoming) (lvm.Volume, error) {
	r.got = in
	return lvm.Volume{}, errors.New("full")
}

// TestOfferOfAnotherClaim: the target notes the claim that it knows from the API server, and whether its volume is raw, whatever the source says.
func TestOfferOfAnotherClaim(t *testing.T) {
	r := &receiver{}
	node, err := move.New(move.Config{Engine: r})
	check.Must(t, err)
	text, err := json.Marshal(move.Offer{Move: "1", Name: "pvc-1", Volume: "vg/pvc-1", Claim: "another/victim", Class: lvm.Class{Layout: lvm.LayoutLinear}, Size: lvm.GiB})
	check.Must(t, err)
	of := Offered{Name: "pvc-1", Handle: "vg/pvc-1", Claim: "ns/db", Block: true, Size: lvm.GiB}
	if _, err := EngineOf(node, nil).Receive(t.Context(), Offer{Move: "1", Text: text}, of, map[string]string{"volumeGroup": "vg"}); err == nil || err.Error() != "full" {
		t.Fatal(err)
	}
	if r.got.Spec.Claim != "ns/db" || !r.got.Spec.Block {
		t.Errorf("received as %+v", r.got.Spec)
	}
}

// TestProgressOf: a copy that waits for others is no problem.
func TestProgressOf(t *testing.T) {
	for want, problem := range map[bool]error{true: &move.Queue{Sends: true, AtOnce: 2, Others: 2}, false: errors.New("the source does not answer")} {
		got := progressOf("1", move.Progress{Done: 1, Total: 2, Problem: problem})
		if got != (Progress{Move: "1", Done: 1, Total: 2, Problem: problem, Queued: want}) {
			t.Errorf("%v: %+v", problem, got)
		}
	}
}

// rounds is the part of an engine that TestRoundIsPrepared needs.
type rounds struct {
	move.Engine
	did []string
}

func (r *rounds) TakeRound(context.Context, lvm.RoundSpec) (lvm.Round, error) {
	r.did = append(r.did, "snapshot")
	return lvm.Round{}, nil
}

// TestRoundIsPrepared: a snapshot of a volume that pods use is prepared as that of a user. LVM would wait for limited I/O, with the lock of the group.
func TestRoundIsPrepared(t *testing.T) {
	r := &rounds{}
	node, err := move.New(move.Config{Engine: r})
	check.Must(t, err)
	var failure error
	engine := EngineOf(node, func(context.Context, lvm.ID) (func(), error) {
		r.did = append(r.did, "prepare")
		return func() { r.did = append(r.did, "end") }, failure
	})
	if err := engine.TakeRound(t.Context(), lvm.ID{}, "", 1, 0); err != nil || !slices.Equal(r.did, []string{"prepare", "snapshot", "end"}) {
		t.Errorf("%v: %v", err, r.did)
	}
	r.did, failure = nil, errors.New("the disk is busy")
	if err := engine.TakeRound(t.Context(), lvm.ID{}, "", 2, 0); !errors.Is(err, failure) || !slices.Equal(r.did, []string{"prepare"}) {
		t.Errorf("not prepared: %v: %v", err, r.did)
	}
}
