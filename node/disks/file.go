package disks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/nodelvm/nodelvm/internal/durable"
	"github.com/nodelvm/nodelvm/report"
)

// record is the content of the file.
type record struct {
	Version int               `json:"version"`
	Disks   []report.LostDisk `json:"disks"`
}

const fileVersion = 1

// fileAge is how old the times in the file may be: a newer time alone is no reason to write.
const fileAge = time.Hour

func load(path string) (map[string]report.LostDisk, error) {
	disks := map[string]report.LostDisk{}
	if path == "" {
		return disks, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return disks, nil
	}
	if err != nil {
		return disks, fmt.Errorf("cannot read the record of the node's disks: %w", err)
	}
	var read record
	if err := json.Unmarshal(text, &read); err != nil {
		return disks, fmt.Errorf("cannot parse the record of the node's disks in %s: %w", path, err)
	}
	if read.Version != fileVersion {
		return disks, fmt.Errorf("the record of the node's disks in %s has format version %d, and this driver reads version %d", path, read.Version, fileVersion)
	}
	for _, d := range read.Disks {
		disks[d.PV] = d
	}
	return disks, nil
}

// store replaces the file unless it holds the same, with times that are recent.
func store(path string, disks []report.LostDisk) error {
	if path == "" {
		return nil
	}
	if old, err := load(path); err == nil && isCurrent(old, disks) {
		return nil
	}
	text, err := json.Marshal(record{fileVersion, disks})
	if err == nil {
		err = durable.Replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("cannot write the record of the node's disks: %w", err)
	}
	return nil
}

func isCurrent(old map[string]report.LostDisk, disks []report.LostDisk) bool {
	for _, d := range disks {
		before, recorded := old[d.PV]
		if !recorded || d.Seen.Sub(before.Seen) > fileAge {
			return false
		}
		if before.Seen = d.Seen; before != d {
			return false
		}
	}
	return len(old) == len(disks)
}
