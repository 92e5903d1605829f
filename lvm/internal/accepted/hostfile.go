package accepted

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// HostEntry is a line of the host's devices file (lvmdevices(8)).
type HostEntry struct{ kind, id, pv, part string }

// names reports whether the entry is of this PV on this device. The host's LVM identifies a device by its name only if it has no
// other identity; then the PV must suffice.
func (h HostEntry) names(pv string, id Identity) bool {
	if h.pv == "" || h.pv != strings.ReplaceAll(pv, "-", "") || (h.part != "") != (id.Partition > 0) {
		return false
	}
	switch h.kind {
	case "sys_wwid":
		return same(h.id, id.WWID)
	case "sys_serial":
		return same(h.id, id.Serial)
	case "devname":
		return id.isWeak()
	}
	return false
}

// same compares an identity in the file, where LVM replaces spaces by underlines, with the hardware's.
func same(a, b string) bool {
	words := func(s string) string {
		return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '_' }), "_")
	}
	return words(a) != "" && words(a) == words(b)
}

// readHostFile reads the host's devices file. A missing file has no entries.
func readHostFile(path string) ([]HostEntry, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return parseHostFile(string(text)), err
}

// parseHostFile ignores lines that are no entries.
func parseHostFile(text string) (entries []HostEntry) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "IDTYPE=") || len(entries) == maxEntries {
			continue
		}
		values := map[string]string{}
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			values[key] = value
		}
		if pv := values["PVID"]; len(pv) == 32 {
			entries = append(entries, HostEntry{values["IDTYPE"], values["IDNAME"], pv, values["PART"]})
		}
	}
	return entries
}
