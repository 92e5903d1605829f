package dm

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestControlIsAbsent: without device-mapper each request fails with fs.ErrNotExist, and a name that the kernel would cut fails before that.
func TestControlIsAbsent(t *testing.T) {
	c := Control(filepath.Join(t.TempDir(), "control"))
	for what, request := range map[string]func(Key) error{
		"info":    func(k Key) error { _, err := c.Info(k); return err },
		"status":  func(k Key) error { _, err := c.Status(k); return err },
		"table":   func(k Key) error { _, err := c.Table(k); return err },
		"suspend": func(k Key) error { return c.Suspend(k, true) },
		"remove":  c.Remove,
		"clear":   c.ClearInactiveTable,
		"load":    func(k Key) error { return c.LoadTarget(k.Name) },
		"targets": func(k Key) error { _, err := c.Targets(); return err },
	} {
		if err := request(Key{Name: "x"}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
		if err := request(Key{Name: strings.Repeat("x", 128)}); what != "targets" && (err == nil || !strings.Contains(err.Error(), "too long")) {
			t.Errorf("%s with a long name: %v", what, err)
		}
	}
}

// TestParseTarget: the first target of an answer, and answers that are truncated.
func TestParseTarget(t *testing.T) {
	answer := make([]byte, 8+40)
	binary.NativeEndian.PutUint64(answer[8+8:], 4096)
	copy(answer[8+24:], "raid")
	answer = append(answer, "raid1 2 AA\x00"...)
	if got, err := parseTarget(answer, 8); err != nil || got != (Target{"raid", "raid1 2 AA", 4096}) {
		t.Errorf("%+v, %v", got, err)
	}
	for what, cut := range map[string]int{"the head": 20, "the parameters": len(answer) - 1} {
		if got, err := parseTarget(answer[:cut], 8); err == nil {
			t.Errorf("without the end of %s: %+v", what, got)
		}
	}
}

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
