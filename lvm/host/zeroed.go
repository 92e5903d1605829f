package host

import (
	"slices"
	"strconv"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// A user of a raw block volume sees every byte of it, also those that nobody wrote since the volume was made. LVM leaves what
// extents held: pvmove, lvconvert --repair, an admin's lvremove, a disk with a history. So a Host knows of each group which
// free extents hold nothing but zeroes: those that it has zeroed itself and given back. All others are zeroed before they
// become a part of such a volume (zerocreate.go, zeroextend.go). File systems never show a block that was not written; neither
// do thin pools. The group's seqno keeps the knowledge true: whoever allocates an extent and gives it back needs two commits.

// zeroed is what is known of one group at one commit.
type zeroed struct {
	seqno    int64
	checksum uint32 // of the metadata's text; 0 where only LVM's report was read
	runs     alloc.RunsByPV
}

// vouched begins a tag of a group by which an admin vouches that all its free extents are zero. The seqno of the very commit
// that adds the tag follows, so that it says nothing about any later one.
const vouched = lvm.TagPrefix + "zeroed="

// after answers what is known of the group as it is now. own bounds how many of the commits since z are this driver's; gained
// is what they gave back zeroed. One foreign commit can take an extent or give one back, not both; of two and more nothing
// is known.
func (z zeroed) after(g lvm.Group, own int64, gained alloc.RunsByPV) zeroed {
	now := zeroed{seqno: g.Seqno, checksum: g.Checksum}
	commits := g.Seqno - z.seqno
	switch {
	case vouchedFor(g):
		now.runs = alloc.FreeRuns(g)
	case commits == 0 && z.same(g):
		now.runs = z.runs.Within(g)
	case commits > 0 && commits <= max(1, own):
		now.runs = z.runs.With(gained).Within(g)
	}
	return now
}

// vouchedFor tells whether an admin vouched for the group at this very commit.
func vouchedFor(g lvm.Group) bool {
	return slices.Contains(g.Tags, vouched+strconv.FormatInt(g.Seqno, 10))
}

// same tells whether g is the group at the very commit of z.
func (z zeroed) same(g lvm.Group) bool {
	return z.seqno == g.Seqno && (z.checksum == g.Checksum || z.checksum == 0 || g.Checksum == 0)
}
