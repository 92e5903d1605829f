package zeroed

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// Files keeps the known zero extents across restarts, one file for each group. It is a cache: a file counts only if it
// was written at the commit that the disks have now. A lost or old file costs zeroing, nothing else.
type Files struct {
	Dir string // "" for none
	Log *slog.Logger
}

// content is the content of a file.
type content struct {
	Version  int            `json:"version"`
	UUID     lvm.VGUUID     `json:"uuid"` // the group's
	Group    lvm.VGName     `json:"group"`
	Seqno    int64          `json:"seqno"`
	Checksum uint32         `json:"checksum"` // of the metadata's text
	Zeroed   alloc.RunsByPV `json:"zeroed"`
}

const fileVersion = 1

// path is next to the group's backups, under a name that no group can have.
func (f Files) path(uuid lvm.VGUUID) string { return filepath.Join(f.Dir, "zeroed:"+string(uuid)) }

// load returns what is known of a group at its first read.
func (f Files) load(g lvm.Group) knowledge {
	z := knowledge{seqno: g.Seqno, checksum: g.Checksum}
	if f.Dir == "" {
		return z
	}
	text, err := os.ReadFile(f.path(g.UUID))
	if errors.Is(err, fs.ErrNotExist) {
		return z
	}
	if err == nil {
		z.runs, err = parseZeroed(text, g)
	}
	if err != nil {
		f.Log.Warn("cannot read which free extents are zero; the driver zeroes them before a raw block volume gets them", "vg", g.Name, "file", f.path(g.UUID), "error", err)
	}
	return z
}

// parseZeroed returns the runs of a file that are still free; none if it was written at another commit.
func parseZeroed(text []byte, g lvm.Group) (alloc.RunsByPV, error) {
	var file content
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Version != fileVersion || file.UUID != g.UUID || file.Seqno != g.Seqno || file.Checksum != g.Checksum {
		return nil, nil
	}
	for pv, runs := range file.Zeroed {
		file.Zeroed[pv] = alloc.Union(runs)
	}
	return file.Zeroed.Within(g), nil
}

// save writes a group's file without a flush: a power cut may damage or lose it.
func (f Files) save(uuid lvm.VGUUID, name lvm.VGName, z knowledge) {
	text, err := json.Marshal(content{fileVersion, uuid, name, z.seqno, z.checksum, z.runs})
	if err == nil {
		temporary := f.path(uuid) + ".new"
		if err = os.WriteFile(temporary, text, 0o600); err == nil {
			err = os.Rename(temporary, f.path(uuid))
		}
	}
	if err != nil {
		f.Log.Warn("cannot save which free extents are zero; after a restart the driver zeroes them before a raw block volume gets them", "vg", name, "error", err)
	}
}
