package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// Exit statuses of blkid when it probes a device itself (blkid(8), "EXIT STATUS").
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// headSize is the number of bytes that lvcreate zeroes at the beginning of a new volume (lvcreate(8), --zero).
const headSize = 4096

// Probe first runs blkid, which in one process decides for a device with content. If blkid finds nothing, Probe also runs
// wipefs, and reads the head itself. blkid returns 2 for "nothing found", but also for "no such device" and for read errors, so
// Probe checks the device before, and reads it afterwards.
func (m machine) Probe(ctx context.Context, device string, mark Mark) (Content, error) {
	mounts, err := m.Mounts(device)
	if err != nil {
		return Content{}, err
	}
	content, err := m.blkid(ctx, device)
	if err != nil {
		return Content{}, err
	}
	content.Mounted = len(mounts) > 0
	head, marked, err := readHead(device, mark)
	if err != nil {
		return content, err
	}
	content.Marked = marked
	switch {
	case content.Type == "xfs" && len(content.Others) == 0 && isUnfinishedXFS(head):
		return Content{Unfinished: "xfs", Marked: marked, Mounted: content.Mounted}, nil
	case content.Type == "xfs" && head[xfsInProgress] != 0:
		return Content{Others: []string{"an unfinished xfs file system without a checksum that proves that its mkfs was interrupted"}}, nil
	case content.Type != "":
		content.Marked = marked && (content.Type == "xfs" || content.Type == "btrfs" || !wasMounted(head[superblocks["ext4"]:]))
		return content, nil
	case !content.Blank():
		return content, nil
	}
	if content.Others, err = m.wipefs(ctx, device); err != nil || !content.Blank() {
		return content, err
	}
	switch {
	case isZero(head):
	case marked && isUnfinishedExt4(head):
		content.Unfinished = "ext4"
	default:
		content.Others = []string{fmt.Sprintf("data of an unknown kind in its first %d bytes", headSize)}
	}
	return content, findRest(device, &content)
}

// xfsInProgress is the offset of the byte in an xfs superblock that mkfs.xfs clears last (sb_inprogress; XFS Algorithms & Data
// Structures, "Superblocks"). The kernel does not mount such a file system while it is set.
const xfsInProgress = 126

// readHead reads the head of a device, and reports whether the device has the format mark.
func readHead(device string, mark Mark) (head []byte, marked bool, err error) {
	f, size, err := openWithSize(device)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	head = make([]byte, headSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, false, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	found, err := findMarks(f, mark, size)
	return head, len(found) > 0, err
}

// findMarks returns the places where a device has the format mark.
func findMarks(device *os.File, mark Mark, size lvm.Bytes) (found []int64, err error) {
	wanted, block := lvm.FormatMark(mark.UUID), make([]byte, lvm.FormatMarkSize)
	for _, at := range mark.places(size) {
		if _, err := device.ReadAt(block, at); err != nil {
			return nil, lvm.Errorf(lvm.KindInternal, "cannot read device %s at byte %d: %w", device.Name(), at, err)
		}
		if bytes.Equal(block, wanted) {
			found = append(found, at)
		}
	}
	return found, nil
}

// findRest searches a device without a signature for the rest of a file system. It returns an error if a possible place of a superblock is
// unreadable: blkid and wipefs would report it as blank.
func findRest(device string, content *Content) error {
	f, size, err := openWithSize(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err = readSuperblocks(f, int64(size)); err == nil && !content.Marked {
		content.Rest, err = findRemains(f, int64(size))
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot read all superblock locations of device %s, so the driver does not format it: %w", device, err)
	}
	return nil
}

func openWithSize(device string) (*os.File, lvm.Bytes, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("cannot read the size of %s: %w", device, err)
	}
	return f, lvm.Bytes(size), nil
}

func (m machine) blkid(ctx context.Context, device string) (Content, error) {
	out, err := m.stdout(ctx, "blkid", "-p", "-o", "export", device)
	var exit exec.ExitError
	switch {
	case err == nil:
		return parseBlkid(out)
	case errors.As(err, &exit) && exit.ExitStatus() == blkidNothing:
		return Content{}, nil
	case errors.As(err, &exit) && exit.ExitStatus() == blkidAmbiguous:
		return Content{Others: []string{"signatures of more than one kind (wipefs " + device + " lists them)"}}, nil
	}
	return Content{}, fmt.Errorf("cannot read the content of %s: blkid: %w", device, err)
}

// parseBlkid parses the lines KEY=VALUE of `blkid -o export`. Success without any known key does not mean blank.
func parseBlkid(out []byte) (Content, error) {
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			found[key] = value
		}
	}
	var c Content
	switch kind, usage := found["TYPE"], found["USAGE"]; {
	case kind == "":
	case usage == "filesystem":
		c.Type = kind
	default:
		c.Others = append(c.Others, fmt.Sprintf("%s (%s)", kind, usage))
	}
	if table := found["PTTYPE"]; table != "" {
		c.Others = append(c.Others, "a partition table ("+table+")")
	}
	if c.Blank() && !isOnlyPartitionEntry(found) {
		return c, fmt.Errorf("cannot interpret the output of blkid: %q", out)
	}
	return c, nil
}

// isOnlyPartitionEntry reports whether blkid found only the device's own partition entry, which is not on the device.
func isOnlyPartitionEntry(found map[string]string) bool {
	for key := range found {
		if key != "DEVNAME" && !strings.HasPrefix(key, "PART_ENTRY_") {
			return false
		}
	}
	return found["PART_ENTRY_DISK"] != ""
}

func (m machine) wipefs(ctx context.Context, device string) ([]string, error) {
	out, err := m.stdout(ctx, "wipefs", "--json", device) // without --all it only lists
	if err != nil {
		return nil, fmt.Errorf("cannot read the content of %s: wipefs: %w", device, err)
	}
	found, err := parseWipefs(out)
	if err != nil {
		return nil, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	return found, nil
}

// parseWipefs parses the list of `wipefs --json`; empty output is an empty list (util-linux before 2.38).
func parseWipefs(out []byte) ([]string, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, nil
	}
	var list struct {
		Signatures []struct{ Type, Offset string }
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("wipefs wrote %q: %w", out, err)
	}
	var found []string
	for _, s := range list.Signatures {
		found = append(found, fmt.Sprintf("%s (at byte %s)", s.Type, s.Offset))
	}
	return found, nil
}

// readSuperblock reads headSize bytes of the device without a tool.
func readSuperblock(device string, offset int64) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, headSize)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	return data, nil
}

// maxListing limits what blkid and wipefs print about one device, in bytes. They print some hundred bytes for each signature.
const maxListing = 1 << 20

// listing is a writer that keeps maxListing bytes, and counts the rest.
type listing struct {
	kept []byte
	rest int
}

func (l *listing) Write(p []byte) (int, error) {
	fits := min(len(p), maxListing-len(l.kept))
	l.kept, l.rest = append(l.kept, p[:fits]...), l.rest+len(p)-fits
	return len(p), nil
}

// stdout runs a tool that only reads; the end of its error messages becomes part of the error. More output than maxListing is an error: a
// part of a list would hide a signature.
func (m machine) stdout(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := m.exec.CommandContext(ctx, name, args...)
	var stdout listing
	var stderr tail.Buffer
	cmd.SetStdout(&stdout)
	cmd.SetStderr(&stderr)
	cmd.SetEnv(append(os.Environ(), "LC_ALL=C"))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w %s", err, stderr.Line())
	}
	if stdout.rest > 0 {
		return nil, fmt.Errorf("it printed %d bytes more than %d", stdout.rest, maxListing)
	}
	return stdout.kept, nil
}
