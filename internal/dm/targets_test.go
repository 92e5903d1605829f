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
		"devices": func(k Key) error { _, err := c.Devices(); return err },
	} {
		if err := request(Key{Name: "x"}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
		named := what != "targets" && what != "devices"
		if err := request(Key{Name: strings.Repeat("x", 128)}); named && (err == nil || !strings.Contains(err.Error(), "too long")) {
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

// TestDeviceNumbers parses the kernel's list of devices, also an empty one, and refuses one that leads out of the answer.
func TestDeviceNumbers(t *testing.T) {
	list := func(numbers ...uint64) []byte {
		const length = 24
		all := make([]byte, 8)
		for i, number := range numbers {
			entry := make([]byte, length)
			binary.NativeEndian.PutUint64(entry, number)
			if copy(entry[12:], "name"); i < len(numbers)-1 {
				binary.NativeEndian.PutUint32(entry[8:], length)
			}
			all = append(all, entry...)
		}
		return all
	}
	for what, c := range map[string]struct {
		answer []byte
		want   []uint64
	}{"two": {list(0xfd00, 0xfd01), []uint64{0xfd00, 0xfd01}}, "none": {list(0), nil}} {
		if got, err := deviceNumbers(c.answer, 8); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	far := list(0xfd00, 0xfd01)
	binary.NativeEndian.PutUint32(far[8+8:], 1<<31)
	for what, answer := range map[string][]byte{"empty": nil, "cut": list(0xfd00)[:12], "an offset beyond the end": far} {
		if got, err := deviceNumbers(answer, 8); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestParseDeps parses the numbers of the devices under one, and refuses a count that exceeds the answer.
func TestParseDeps(t *testing.T) {
	answer := make([]byte, 8+8+2*8)
	binary.NativeEndian.PutUint32(answer[8:], 2)
	binary.NativeEndian.PutUint64(answer[16:], 0x811)
	binary.NativeEndian.PutUint64(answer[24:], 0xfd03)
	if got, err := parseDeps(answer, 8); err != nil || !slices.Equal(got, []uint64{0x811, 0xfd03}) {
		t.Errorf("%v, %v", got, err)
	}
	for what, cut := range map[string]int{"the numbers": len(answer) - 1, "the count": 12} {
		if got, err := parseDeps(answer[:cut], 8); err == nil {
			t.Errorf("without the end of %s: %v", what, got)
		}
	}
}
