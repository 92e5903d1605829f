package filesystem

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// TestFsck: what the end of fsck.ext4 means.
func TestFsck(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for ending, want := range map[string]struct {
		kind lvm.Kind
		says string
	}{
		"exit 0":     {},
		"exit 1":     {}, // errors corrected
		"exit 8":     {}, // mount will tell
		"exit 4":     {lvm.KindConflict, "cannot be repaired automatically"},
		"exit 12":    {lvm.KindConflict, "cannot be repaired automatically"},
		"kill -9 $$": {lvm.KindInternal, "did not end"},
	} {
		script := "#!/bin/sh\n" + ending + "\n"
		check.Must(t, os.WriteFile(filepath.Join(dir, "fsck.ext4"), []byte(script), 0o700))
		err := New().Fsck(t.Context(), "/dev/dm-3", "ext4")
		if (err == nil) != (want.says == "") || err != nil && (lvm.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.says)) {
			t.Errorf("%s: %v; want kind %d and the words %q", ending, err, want.kind, want.says)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := New().Fsck(t.Context(), "/dev/dm-3", "ext4"); lvm.KindOf(err) != lvm.KindInternal || err == nil {
		t.Errorf("a check that did not begin: %v", err)
	}
}

// TestOutputOfToolsIsBounded: tools print as much as a volume's content makes them. The driver keeps only the end of it.
func TestOutputOfToolsIsBounded(t *testing.T) {
	dir := t.TempDir()
	const much = "#!/bin/sh\ni=0; while [ $i -lt 40000 ]; do echo \"Clearing orphaned inode $i (uid=0, gid=0, mode=0100644, size=4096)\"; i=$((i+1)); done; echo \"$0: the reason\" >&2; exit 4\n"
	for _, name := range []string{"fsck.ext4", "resize2fs", "blkid"} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(much), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := New()
	fsck := m.Fsck(t.Context(), "/dev/dm-3", "ext4")
	if lvm.KindOf(fsck) != lvm.KindConflict {
		t.Errorf("the check has left errors: %.200v", fsck)
	}
	_, probe := m.blkid(t.Context(), "/dev/dm-3")
	for name, err := range map[string]error{"fsck.ext4": fsck, "resize2fs": m.Resize("/dev/dm-3", "/target", "ext4"), "blkid": probe} {
		if err == nil || !strings.HasSuffix(err.Error(), name+": the reason") || len(err.Error()) > tail.Size+500 {
			t.Errorf("%s: an error of %d bytes: %.200v", name, len(err.Error()), err)
		}
	}
	check.Must(t, os.WriteFile(filepath.Join(dir, "blkid"), []byte(strings.Replace(much, "exit 4", "exit 0", 1)), 0o755))
	if out, err := m.stdout(t.Context(), "blkid"); err == nil || len(out) > 0 {
		t.Errorf("a list without an end: %d bytes, %v", len(out), err)
	}
}

func TestParseBlkid(t *testing.T) {
	for out, want := range map[string]string{
		"DEVNAME=/dev/dm-0\nUUID=x\nTYPE=ext4\nUSAGE=filesystem\n":             "ext4|",
		"DEVNAME=/dev/dm-0\nTYPE=LVM2_member\nUSAGE=raid\n":                    "|LVM2_member (raid)",
		"DEVNAME=/dev/dm-0\nTYPE=crypto_LUKS\nUSAGE=crypto\n":                  "|crypto_LUKS (crypto)",
		"DEVNAME=/dev/dm-0\nTYPE=swap\nUSAGE=other\n":                          "|swap (other)",
		"DEVNAME=/dev/dm-0\nPTUUID=x\nPTTYPE=gpt\n":                            "|a partition table (gpt)",
		"LABEL=TYPE=xfs\nTYPE=vfat\nUSAGE=filesystem\nPTTYPE=dos\n":            "vfat|a partition table (dos)",
		"DEVNAME=/dev/dm-0\n":                                                  "error",
		"DEVNAME=/dev/sda2\nPART_ENTRY_SCHEME=dos\nPART_ENTRY_DISK=8:0\n":      "|",
		"DEVNAME=/dev/sda2\nPART_ENTRY_DISK=8:0\nTYPE=xfs\nUSAGE=filesystem\n": "xfs|",
		"DEVNAME=/dev/sda2\nPART_ENTRY_DISK=8:0\nSOMETHING=new\n":              "error",
		"": "error",
	} {
		c, err := parseBlkid([]byte(out))
		got := c.Type + "|" + strings.Join(c.Others, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s (%v), want %s", out, got, err, want)
		}
	}
}

func TestParseWipefs(t *testing.T) {
	for out, want := range map[string]string{
		"":                                     "",
		"{\n   \"signatures\": [\n\n   ]\n}\n": "",
		`{"signatures": [{"device":"loop1","offset":"0x438","type":"ext4","uuid":"x","label":null},{"device":"loop1","offset":"0x1fe","type":"dos","uuid":null,"label":null}]}`: "ext4 (at byte 0x438)|dos (at byte 0x1fe)",
		"wipefs: no": "error",
	} {
		found, err := parseWipefs([]byte(out))
		got := strings.Join(found, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s (%v), want %s", out, got, err, want)
		}
	}
}
