package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// signatureSpan is the number of bytes to read at the beginning of a volume: it includes the last of hostSignatures.
const signatureSpan = 68 << 10

// hostSignatures are the signatures that LVM, mdadm and the kernel's btrfs search for on the devices of a node (LVM2,
// lib/label/label.h; Linux, include/uapi/linux/raid/md_p.h and fs/btrfs/fs.h).
var hostSignatures = []struct {
	what    string
	offsets []int
	mark    []byte
}{
	{"an LVM physical volume", []int{0, 512, 1024, 1536}, []byte("LABELONE")},
	{mdMember, []int{0, 4096}, mdMagic},
	{"a btrfs file system", []int{64<<10 + 64}, []byte("_BHRfS_M")},
}

const mdMember = "a member of an md array"

var mdMagic = []byte{0xfc, 0x4e, 0x2b, 0xa9}

// mdEndOffsets returns the offsets of the superblocks of md's versions 0.90 and 1.0 on a device of a size: in the last whole 64
// KiB, and 8 KiB before the end at a multiple of 4 KiB (md(4)).
func mdEndOffsets(size lvm.Bytes) []int64 {
	const reserved, sector = 64 << 10, 512
	return []int64{int64(size)&^(reserved-1) - reserved, (int64(size)/sector - 16) &^ 7 * sector}
}

// matchHostSignature names the signature at the beginning of a volume; "": none.
func matchHostSignature(head []byte) string {
	for _, s := range hostSignatures {
		for _, at := range s.offsets {
			if len(head) >= at && bytes.HasPrefix(head[at:], s.mark) {
				return s.what
			}
		}
	}
	return ""
}

// signatureTimeout limits the check of a node's volumes: an unresponsive device must not delay the other findings.
const signatureTimeout = 5 * time.Second

// findHostSignatures returns the raw block volumes with a signature that the node's own system might act on, and the encrypted
// volumes with a damaged header.
func (s *Server) findHostSignatures(ctx context.Context, volumes []lvm.Volume) []lvm.Condition {
	if !s.signatureScan.TryLock() {
		return nil // an earlier check waits for an unresponsive device
	}
	done := make(chan []lvm.Condition, 1)
	go func() {
		defer s.signatureScan.Unlock()
		findings := s.checkHeaders(ctx, volumes)
		for _, raw := range s.rawVolumes(ctx, volumes) {
			if f, found := s.hostSignatureFinding(raw); found {
				findings = append(findings, f)
			}
		}
		done <- findings
	}()
	timer := time.NewTimer(signatureTimeout)
	defer timer.Stop()
	select {
	case findings := <-done:
		return findings
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// rawVolume is a volume that is published as a raw block volume.
type rawVolume struct {
	lvm.Volume
	path string // of its device
}

// rawVolumes returns the volumes that are published as raw block volumes. If there is none, it only reads the mount table, because each
// scrape of the metrics calls it.
func (s *Server) rawVolumes(ctx context.Context, volumes []lvm.Volume) []rawVolume {
	numbers, err := s.mounts.RawDevices()
	if err != nil || len(numbers) == 0 {
		return nil
	}
	var raw []rawVolume
	deviceOf := s.activeDevices(ctx, volumes)
	for _, block := range []bool{true, false} { // raw block volumes first: the search ends when it has found all
		for _, v := range volumes {
			if len(raw) == len(numbers) {
				return raw
			}
			if v.Block != block {
				continue
			}
			if path, number, active := deviceOf(v); active && slices.Contains(numbers, number) {
				raw = append(raw, rawVolume{v, path})
			}
		}
	}
	return raw
}

// hostSignatureFinding checks a raw block volume.
func (s *Server) hostSignatureFinding(raw rawVolume) (lvm.Condition, bool) {
	v, path := raw.Volume, raw.path
	what := s.readHostSignature(path)
	if what == "" {
		return lvm.Condition{}, false
	}
	return lvm.Condition{Type: lvm.ConditionSignatureFound, Group: v.Group, Volume: v, Cause: what, Text: fmt.Sprintf(
		"the raw block volume %s/%s (%s) %s, which its user wrote. The driver ignores it; configure the node to ignore it too (docs/explanation/security.md)",
		v.Group, v.ID.LV, path, what)}, true
}

// readHostSignature describes the signature at the beginning or end of a device; "": none on which the node's own system acts,
// or the device is unreadable, too small, or no longer exists.
func (s *Server) readHostSignature(path string) string {
	head, err := s.block.ReadAt(path, 0, signatureSpan)
	if err != nil {
		return ""
	}
	if what := matchHostSignature(head); what != "" {
		return "begins like " + what
	}
	block, err := s.block.Stat(path)
	if err != nil {
		return ""
	}
	for _, offset := range mdEndOffsets(block.Size) {
		if mark, err := s.block.ReadAt(path, offset, len(mdMagic)); err == nil && bytes.Equal(mark, mdMagic) {
			return "ends like " + mdMember
		}
	}
	return ""
}
