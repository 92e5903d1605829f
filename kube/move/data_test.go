package move

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

// TestParseOffer: the text is another node's word, and the class that of the cluster.
func TestParseOffer(t *testing.T) {
	offer := move.Offer{Volume: "vg/lv", Move: "1", Name: "v", Class: lvm.Class{Group: "theirs", Layout: lvm.LayoutStriped, Stripes: 2, StripeSize: 64 * lvm.KiB}, Size: 8 * lvm.MiB}
	text, err := json.Marshal(offer)
	if err != nil {
		t.Fatal(err)
	}
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
