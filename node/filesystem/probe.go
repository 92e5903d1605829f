package filesystem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/lvm"
)

// Exit statuses of blkid when it probes a device itself (blkid(8), "EXIT STATUS").
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// Probe reads the content of a device, which may have this mark. It never writes, and ends with ctx. It first runs blkid, which in one process
// decides for a device with content. If blkid finds nothing, Probe also runs wipefs, and reads the head itself. blkid returns 2 for "nothing
// found", but also for "no such device" and for read errors, so Probe reads the device afterwards.
func (m Tools) Probe(ctx context.Context, device string, mark Mark) (Content, error) {
	content, err := m.blkid(ctx, device)
	if err != nil {
		return Content{}, err
	}
	head, marked, err := readHead(device, mark)
	if err != nil {
		return content, err
	}
	content.Marked = marked
	switch {
	case content.Type == "xfs" && len(content.Others) == 0 && isUnfinishedXFS(head):
		return Content{Unfinished: "xfs", Marked: marked}, nil
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

// readHead reads the head of a device, and reports whether the device has the format mark.
func readHead(device string, mark Mark) (head []byte, marked bool, err error) {
	f, size, err := open(device)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	if head, err = readHeadSize(f, 0); err != nil {
		return nil, false, err
	}
	found, err := findMarks(f, mark, size)
	return head, len(found) > 0, err
}

// findRest searches a device without a signature for the rest of a file system. It returns an error if a possible place of a superblock is
// unreadable: blkid and wipefs would report it as blank.
func findRest(device string, content *Content) error {
	f, size, err := open(device)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err = readSuperblocks(f, size); err == nil && !content.Marked {
		content.Rest, err = findRemains(f, int64(size))
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot read all superblock locations of device %s, so the driver does not format it: %w", device, err)
	}
	return nil
}

func (m Tools) blkid(ctx context.Context, device string) (Content, error) {
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

func (m Tools) wipefs(ctx context.Context, device string) ([]string, error) {
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

// ListSignatures names what blkid, with unrestricted probing, and wipefs find on a device: file systems, partition tables, and
// all else that they know. It never writes. An empty list alone does not prove that the device is blank.
func ListSignatures(ctx context.Context, device string) ([]string, error) {
	m := New()
	content, err := m.blkid(ctx, device)
	if err != nil {
		return nil, err
	}
	if content.Type != "" {
		content.Others = append(content.Others, "a file system of type "+content.Type)
	}
	if len(content.Others) > 0 {
		return content.Others, nil
	}
	return m.wipefs(ctx, device)
}
