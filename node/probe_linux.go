package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/utils/exec"
)

// What blkid's exit status means when it probes a device itself (blkid(8), "EXIT STATUS").
const (
	blkidNothing   = 2
	blkidAmbiguous = 8
)

// headSize is how much of a new volume lvcreate zeroes (lvcreate(8), --zero).
const headSize = 4096

// xfsInProgress is the byte of an xfs superblock that mkfs.xfs clears when all is done (sb_inprogress; XFS Algorithms &
// Data Structures, "Superblocks"). The kernel does not mount such a file system.
const xfsInProgress = 126

// Probe asks blkid first; that settles a device with content, in one process. Where blkid finds nothing, wipefs and the
// bytes themselves are asked too. blkid answers 2 both for "nothing found" and for "no such device", so the device is
// looked at before.
func (m machine) Probe(ctx context.Context, device string) (Content, error) {
	mounts, err := m.Mounts(device)
	if err != nil {
		return Content{}, err
	}
	content, err := m.blkid(ctx, device)
	if err != nil {
		return Content{}, err
	}
	content.Mounted = len(mounts) > 0
	head, err := readAt(device, 0)
	if err != nil {
		return content, err
	}
	if content.Type == "xfs" && head[xfsInProgress] != 0 {
		content = Content{Others: []string{"an xfs file system that was never finished (its mkfs.xfs was cut short, so nothing was ever in it)"}}
	}
	if !content.Blank() {
		return content, nil
	}
	if content.Others, err = m.wipefs(ctx, device); err != nil || !content.Blank() {
		return content, err
	}
	if len(bytes.Trim(head, "\x00")) > 0 {
		content.Others = []string{fmt.Sprintf("data of an unknown kind in its first %d bytes", headSize)}
	}
	return content, nil
}

func (m machine) blkid(ctx context.Context, device string) (Content, error) {
	out, err := m.output(ctx, "blkid", "-p", "-o", "export", device)
	var exit exec.ExitError
	switch {
	case err == nil:
		return parseBlkid(out)
	case errors.As(err, &exit) && exit.ExitStatus() == blkidNothing:
		return Content{}, nil
	case errors.As(err, &exit) && exit.ExitStatus() == blkidAmbiguous:
		return Content{Others: []string{"signatures of more than one kind (wipefs " + device + " lists them)"}}, nil
	}
	return Content{}, fmt.Errorf("what is on %s cannot be told: blkid: %w", device, err)
}

// parseBlkid reads the lines KEY=VALUE of `blkid -o export`. Success without anything that is known is not blankness.
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
	if c.Blank() && !onlyPartition(found) {
		return c, fmt.Errorf("blkid found something and did not say what: %q", out)
	}
	return c, nil
}

// onlyPartition tells whether nothing was found but that the device is a partition, and which: that is not on it.
func onlyPartition(found map[string]string) bool {
	for key := range found {
		if key != "DEVNAME" && !strings.HasPrefix(key, "PART_ENTRY_") {
			return false
		}
	}
	return found["PART_ENTRY_DISK"] != ""
}

func (m machine) wipefs(ctx context.Context, device string) ([]string, error) {
	out, err := m.output(ctx, "wipefs", "--json", device) // without --all it only lists
	if err != nil {
		return nil, fmt.Errorf("what is on %s cannot be told: wipefs: %w", device, err)
	}
	found, err := parseWipefs(out)
	if err != nil {
		return nil, fmt.Errorf("what is on %s cannot be told: %w", device, err)
	}
	return found, nil
}

// parseWipefs reads the list of `wipefs --json`; no output at all is an empty list (util-linux before 2.38).
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

// readAt reads headSize bytes of the device past any tool.
func readAt(device string, offset int64) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("what is on %s cannot be told: %w", device, err)
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, headSize)
	if _, err := f.ReadAt(data, offset); err != nil {
		return nil, fmt.Errorf("what is on %s cannot be told: %w", device, err)
	}
	return data, nil
}

// output runs a tool that only reads; its complaints become part of the error.
func (m machine) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := m.exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.SetStdout(&stdout)
	cmd.SetStderr(&stderr)
	cmd.SetEnv(append(os.Environ(), "LC_ALL=C"))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w %s", err, oneLine(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
