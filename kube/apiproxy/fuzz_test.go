package apiproxy

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
)

// FuzzSnapshotFilter: users write VolumeSnapshots. Whatever the API server sends, the filter returns valid JSON or an error.
func FuzzSnapshotFilter(f *testing.F) {
	f.Add([]byte(`{"items":[{"metadata":{"finalizers":["` + restoreFinalizer + `"]}}],"metadata":{}}`))
	f.Add([]byte(`{"type":"MODIFIED","object":{"metadata":{"name":"a"}}}`))
	f.Add([]byte(`{"\u0000":1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, err := (snapshotFilter{slog.New(slog.DiscardHandler)}).list(bytes.NewReader(text)); err == nil && !json.Valid(slices.Concat(list...)) {
			t.Errorf("list: %q", list)
		}
		if frame, err := (snapshotFilter{slog.New(slog.DiscardHandler)}).event(text); err == nil && frame != nil && !json.Valid(frame) {
			t.Errorf("event: %q", frame)
		}
	})
}
