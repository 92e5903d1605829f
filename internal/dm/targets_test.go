package dm

import (
	"encoding/binary"
	"slices"
	"testing"
)

// targetList is the kernel's answer to DM_LIST_VERSIONS, after some bytes.
func targetList(before int, names ...string) []byte {
	list := make([]byte, before)
	for i, name := range names {
		length := (targetVersion + len(name) + 1 + 7) / 8 * 8
		entry := make([]byte, length)
		if i < len(names)-1 {
			binary.NativeEndian.PutUint32(entry, uint32(length))
		}
		copy(entry[targetVersion:], name)
		list = append(list, entry...)
	}
	return list
}

// TestTargetNames parses the kernel's list, and refuses one that is truncated or leads out of the answer.
func TestTargetNames(t *testing.T) {
	whole := targetList(8, "thin-pool", "thin", "linear")
	got, err := targetNames(whole, 8)
	if err != nil || len(got) != 3 || !got["thin-pool"] || !got["thin"] || !got["linear"] {
		t.Errorf("got %v, %v", got, err)
	}
	far := slices.Clone(whole)
	binary.NativeEndian.PutUint32(far[8:], 1<<31)
	for what, answer := range map[string][]byte{"empty": nil, "only the start": whole[:8], "a name without an end": whole[:8+targetVersion+4], "an offset beyond the end": far} {
		if got, err := targetNames(answer, 8); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
}
