package node

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// TestFormatUnderTheMark: NodeStageVolume formats a created volume only with its mark, in the logical volume or, if that is encrypted, in
// both devices, and removes the logical volume's before it is used.
func TestFormatUnderTheMark(t *testing.T) {
	f := newFake()
	f.volume.FormatMark = 12345 * lvm.FormatMarkSize
	if err := f.stage(t); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "was in use") {
		t.Errorf("a volume without its mark: %v", err)
	}
	f.expect(t, "activate")
	f.content.Marked = true
	must(t, f.stage(t))
	f.expect(t, "activate", "format ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro")

	f = newEncrypted()
	f.volume.FormatMark = lvm.LUKSHeaderSize + 12345*lvm.FormatMarkSize
	if err := f.stageEncrypted(t, secret); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "cryptsetup repair /dev/dm-3") {
		t.Errorf("an encrypted volume without its mark: %v", err)
	}
	f.expect(t, "activate")
	f.contents = map[string]filesystem.Content{"/dev/dm-3": {Marked: true}, mappingPath: {}}
	if err := f.stageEncrypted(t, secret); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "e2fsck") {
		t.Errorf("a mapping without its mark: %v", err)
	}
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid", "write mark /dev/dm-7 uuid at 50565120", "open /dev/dm-3")
	f.contents = map[string]filesystem.Content{mappingPath: {Marked: true}}
	must(t, f.stageEncrypted(t, secret))
	f.expect(t, "activate", "open /dev/dm-3", "format ext4 /dev/dm-7", "create /staging", "mount /dev/dm-7 /staging ext4 errors=remount-ro")

	f = newEncrypted() // its user can read each byte of the mapping
	f.volume.FormatMark, f.volume.Block = lvm.LUKSHeaderSize+12345*lvm.FormatMarkSize, true
	f.content.Marked = true
	must(t, f.stageEncrypted(t, secret, rawBlock))
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid", "open /dev/dm-3")
}
