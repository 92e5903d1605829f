package hostile

import (
	"encoding/json"
	"testing"

	"github.com/nodelvm/nodelvm/api"
)

// TestKinds: the objects are as many as the scenario says, differ in their names, and the API server can store each.
func TestKinds(t *testing.T) {
	const stored = 1536 << 10
	names, snapshots, oversized := map[string]bool{}, 0, 0
	for _, object := range malicious() {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > stored {
			t.Errorf("%s has %d bytes", object.GetName(), len(text))
		}
		if len(text) > api.MaxObject {
			oversized++
		}
		key := object.GetKind() + "/" + object.GetName()
		if names[key] {
			t.Errorf("there are two of %s", key)
		}
		names[key] = true
		if object.GetKind() == "VolumeSnapshot" {
			snapshots++
		}
	}
	if len(names) != objects {
		t.Errorf("there are %d objects, not %d", len(names), objects)
	}
	if snapshots >= snapshotQuota {
		t.Errorf("the %d snapshots leave the client none of the quota of %d", snapshots, snapshotQuota)
	}
	if oversized < 50 {
		t.Errorf("only %d objects are larger than what the driver handles", oversized)
	}
}

// TestBound: the claims below the limit are below it as the API server encodes them, with what it adds.
func TestBound(t *testing.T) {
	checked := 0
	for _, object := range malicious() {
		if text, err := json.Marshal(object); err != nil || object.GetAnnotations()["note"] == "" || object.GetName()[:5] != "below" {
			continue
		} else if checked++; len(text) > api.MaxObject-2<<10 || len(text) < api.MaxObject*9/10 {
			t.Errorf("%s has %d bytes", object.GetName(), len(text))
		}
	}
	if checked == 0 {
		t.Error("there is none: nothing was checked")
	}
}
