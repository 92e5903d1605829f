package node

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// signatureRead is the number of bytes to read at once: the places of most signatures are that close to each other. Each raw volume
// of the node is read at each scrape, so that fewer but longer reads take more time.
const signatureRead = 8 << 10

// signature is what marks a kind of device, at an offset.
type signature struct {
	what   string
	offset int64
	mark   string
}

const (
	lvmPV      = "an LVM physical volume"
	lvmMark    = "LABELONE"
	mdMember   = "a member of an md array"
	mdMark     = "\xfc\x4e\x2b\xa9"
	bcacheMark = "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"
	ddfMember  = "a member of a DDF array"
	ddfMark    = "\xde\x11\xde\x11"
	ddfSwapped = "\x11\xde\x11\xde" // in the other byte order
	imsmMember = "a member of an IMSM array"
	imsmMark   = "Intel Raid ISM Cfg Sig. "
)

// headSignatures are the signatures at the beginning of a device that LVM, mdadm, bcache and the kernel's btrfs search for on the
// devices of a node. The offsets ascend. Sources: LVM2, lib/label/label.h; Linux, include/uapi/linux/raid/md_p.h and fs/btrfs/fs.h;
// bcache-tools, bcache.h.
var headSignatures = []signature{
	{mdMember, 0, mdMark},
	{lvmPV, 0, lvmMark},
	{lvmPV, 512, lvmMark},
	{lvmPV, 1024, lvmMark},
	{lvmPV, 1536, lvmMark},
	{mdMember, 4096, mdMark},
	{"a bcache device", 4096 + 24, bcacheMark},
	{"a btrfs file system", 64<<10 + 64, "_BHRfS_M"},
}

// tailSignatures returns the signatures at the end of a device of a size. The offsets ascend. md's version 0.90 is in the last whole
// 64 KiB, and 1.0 is 8 KiB before the end, at a multiple of 4 KiB (md(4)). DDF and IMSM are of RAID controllers: mdadm assembles them too.
//
// udev's rules call mdadm for what libblkid finds (libblkid/src/superblocks/ddf_raid.c, isw_raid.c). It counts sectors of 512 bytes
// on each disk. mdadm reads DDF in the last of them, and since 4.5 can search 32 MiB for it (super-ddf.c). It reads IMSM in the
// second-last logical sector, which can have 4096 bytes, and takes it without an Intel controller only with IMSM_NO_PLATFORM
// (super-intel.c).
func tailSignatures(size int64) []signature {
	const reserved, sector = 64 << 10, 512
	return []signature{
		{ddfMember, size - 257*sector, ddfMark},
		{ddfMember, size - 257*sector, ddfSwapped},
		{mdMember, size&^(reserved-1) - reserved, mdMark},
		{mdMember, (size/sector - 16) &^ 7 * sector, mdMark},
		{imsmMember, size - 2*4096, imsmMark},
		{imsmMember, size - 2*sector, imsmMark},
		{ddfMember, size - sector, ddfMark},
		{ddfMember, size - sector, ddfSwapped},
	}
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
// or the device is unreadable or no longer exists.
func (s *Server) readHostSignature(path string) string {
	block, err := s.block.Stat(path)
	if err != nil {
		return ""
	}
	size := int64(block.Size)
	if what := s.findSignature(path, size, headSignatures); what != "" {
		return "begins like " + what
	}
	if what := s.findSignature(path, size, tailSignatures(size)); what != "" {
		return "ends like " + what
	}
	return ""
}

// findSignature names the first of these signatures, whose offsets ascend, on a device; "": none, or it is unreadable.
func (s *Server) findSignature(path string, size int64, signatures []signature) string {
	var data []byte
	var from int64 // of data
	for _, g := range signatures {
		end := g.offset + int64(len(g.mark))
		if g.offset < 0 || end > size {
			continue // the device is too small for it
		}
		if end > from+int64(len(data)) {
			from = g.offset
			var err error
			if data, err = s.block.ReadAt(path, from, int(min(signatureRead, size-from))); err != nil {
				return ""
			}
		}
		if bytes.HasPrefix(data[g.offset-from:], []byte(g.mark)) {
			return g.what
		}
	}
	return ""
}
