package restart

import (
	"encoding/json"
	"testing"
)

// TestIsCopied: the workload deletes no claim with a snapshot that is not ready.
func TestIsCopied(t *testing.T) {
	var snapshots []volumeSnapshot
	err := json.Unmarshal([]byte(`[
		{"spec": {"source": {"persistentVolumeClaimName": "new"}}},
		{"spec": {"source": {"persistentVolumeClaimName": "waiting"}}, "status": {"readyToUse": false}},
		{"spec": {"source": {"persistentVolumeClaimName": "ready"}}, "status": {"readyToUse": true}}]`), &snapshots)
	if err != nil {
		t.Fatal(err)
	}
	for claim, want := range map[string]bool{"new": true, "waiting": true, "ready": false, "other": false} {
		if got := isCopied(claim, snapshots); got != want {
			t.Errorf("%s: %t, want %t", claim, got, want)
		}
	}
}
