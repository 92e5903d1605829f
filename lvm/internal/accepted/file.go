package accepted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/durable"
)

// Entry is one accepted physical volume.
type Entry struct {
	PV     string `json:"pvUUID,omitempty"` // "": whichever the device has, because it could not be read when the driver first ran
	Device string `json:"device"`           // its path when it was recorded; it identifies nothing
	Identity
	Reason Reason `json:"reason"`
}

// Reason says why a physical volume is accepted.
type Reason string

const (
	FirstUse      Reason = "first-use"       // It was there when the driver first ran on the node.
	NoOtherDriver Reason = "no-other-driver" // The node had no other driver's volumes.
	Prepared      Reason = "prepared"        // The driver created it.
	Declared      Reason = "declared"        // The chart's values name its device.
	HostFile      Reason = "devices-file"    // The host's devices file lists it.
	Listed        Reason = "listed"          // The metadata on an accepted PV of its group lists it.
	Command       Reason = "command"         // An admin accepted it.
)

// Limits of the file. A node has far fewer disks.
const (
	maxFile    = 1 << 20 // bytes
	maxEntries = 1024
)

const fileVersion = 1

// content is the file's content.
type content struct {
	Version int     `json:"version"`
	Entries []Entry `json:"physicalVolumes"`
}

// parse reads the content of the file. The error says why it is not one that this driver has written.
func parse(text []byte) ([]Entry, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var c content
	if err := decoder.Decode(&c); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows its end")
	}
	if c.Version != fileVersion {
		return nil, fmt.Errorf("it has format version %d, and this driver reads version %d", c.Version, fileVersion)
	}
	if len(c.Entries) > maxEntries {
		return nil, fmt.Errorf("it has %d entries, more than %d", len(c.Entries), maxEntries)
	}
	for i, e := range c.Entries {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return c.Entries, nil
}

func (e Entry) check() error {
	for _, text := range []string{e.PV, e.Device, e.WWID, e.Serial, e.Place, string(e.Reason)} {
		if clean(text) != text {
			return fmt.Errorf("%.40q is no text of this record", text)
		}
	}
	if e.isWeak() && e.Place == "" || e.Partition < 0 {
		return errors.New("it identifies no device")
	}
	return nil
}

// load reads the file. fs.ErrNotExist: there is none.
func load(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return parse(text)
}

// store replaces the file: after a power cut, the whole old one or the whole new one is there.
func store(path string, entries []Entry) error {
	if entries == nil {
		entries = []Entry{}
	}
	text, err := json.MarshalIndent(content{fileVersion, entries}, "", "  ")
	if err != nil {
		return err
	}
	if _, err := parse(text); err != nil {
		return err
	}
	return durable.Replace(path, append(text, '\n'))
}

// locked runs a change of the file alone: the driver and an admin's command may change it at once.
func locked(path string, change func() error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	return change()
}

// stamp changes with each replacement of the file.
type stamp struct {
	inode uint64
	time  unix.Timespec
	size  int64
}

func stampOf(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{st.Ino, st.Mtim, st.Size}, nil
}
