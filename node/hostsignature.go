package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// signatureSpan is how much of a volume's beginning is read: as far as the last of hostSignatures.
const signatureSpan = 68 << 10

// hostSignatures are what LVM, mdadm and the kernel's btrfs look for on the devices of a node (LVM2, lib/label/label.h; Linux,
// include/uapi/linux/raid/md_p.h and fs/btrfs/fs.h).
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

// mdEndOffsets are the offsets of the superblocks of md's versions 0.90 and 1.0 on a device of a size: in the last whole 64 KiB, and 8 KiB
// before the end at a multiple of 4 KiB (md(4)).
func mdEndOffsets(size lvm.Bytes) []int64 {
	const reserved, sector = 64 << 10, 512
	return []int64{int64(size)&^(reserved-1) - reserved, (int64(size)/sector - 16) &^ 7 * sector}
}

// matchHostSignature names what the beginning of a volume looks like to the node's own system; "" for nothing of it.
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

// signatureTimeout bounds the check of a node's volumes: an unresponsive device must not delay the other findings.
const signatureTimeout = 5 * time.Second

// findHostSignatures looks for raw block volumes with a signature that the node's own system might act on, and for encrypted volumes
// whose header is damaged.
func (s *Server) findHostSignatures(ctx context.Context, volumes []lvm.Volume) []lvm.Condition {
	if !s.signatureScan.TryLock() {
		return nil // an earlier check waits for an unresponsive device
	}
	done := make(chan []lvm.Condition, 1)
	go func() {
		defer s.signatureScan.Unlock()
		findings := s.checkHeaders(volumes)
		for _, raw := range s.rawVolumes(volumes) {
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

// rawVolumes finds the volumes that are published as raw block volumes. A node without any costs one reading of the mount table:
// each scrape of the metrics comes here, and asking for each volume's device costs many system calls.
func (s *Server) rawVolumes(volumes []lvm.Volume) []rawVolume {
	numbers, err := s.fs.RawDevices()
	if err != nil || len(numbers) == 0 {
		return nil
	}
	var raw []rawVolume
	for _, block := range []bool{true, false} { // those that were created for this first: the search ends when all are found
		for _, v := range volumes {
			if len(raw) == len(numbers) {
				return raw
			}
			if v.Block != block {
				continue
			}
			path, active, err := s.currentDevice(volumeOf(v))
			if err != nil || !active {
				continue
			}
			if device, err := s.fs.Stat(path); err == nil && slices.Contains(numbers, device.Number) {
				raw = append(raw, rawVolume{v, path})
			}
		}
	}
	return raw
}

// hostSignatureFinding reads a raw block volume.
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

// readHostSignature tells what a device begins or ends like; "" for nothing that the node's own system acts on, and for what cannot be
// read, is too small, or has just gone.
func (s *Server) readHostSignature(path string) string {
	head, err := s.fs.ReadAt(path, 0, signatureSpan)
	if err != nil {
		return ""
	}
	if what := matchHostSignature(head); what != "" {
		return "begins like " + what
	}
	block, err := s.fs.Stat(path)
	if err != nil {
		return ""
	}
	for _, offset := range mdEndOffsets(block.Size) {
		if mark, err := s.fs.ReadAt(path, offset, len(mdMagic)); err == nil && bytes.Equal(mark, mdMagic) {
			return "ends like " + mdMember
		}
	}
	return ""
}
