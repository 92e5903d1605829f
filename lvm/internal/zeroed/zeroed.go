package zeroed

import (
	"slices"
	"strconv"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// A user of a raw block volume can read every byte of it, also bytes that no process has written since its creation. LVM leaves
// old data in extents: after pvmove, lvconvert --repair, an admin's lvremove, or on a used disk. So a Host knows for each group
// which free extents are zero: those that it zeroed and freed itself. It zeroes all others before they become part of such a
// volume (zerocreate.go, zeroextend.go). File systems and thin pools never show a block that was not written. The group's seqno
// keeps the knowledge true: to allocate an extent and free it again takes two commits.

// knowledge is what a Host knows of one group at one commit.
type knowledge struct {
	seqno    int64
	checksum uint32 // of the metadata's text
	runs     alloc.RunsByPV
}

// vouched is the prefix of a tag by which an admin vouches that all free extents of the group are zero. It ends in the seqno of
// the commit that adds it, so that it does not apply after any later commit.
const vouched = lvm.TagPrefix + "zeroed="

// after returns what is known of the group's current state. own bounds how many commits since z are this driver's; gained are
// the zeroed extents that they freed. One commit of another program can allocate an extent or free one, not both; after two or
// more nothing is known.
func (z knowledge) after(g lvm.Group, own int64, gained alloc.RunsByPV) knowledge {
	now := knowledge{seqno: g.Seqno, checksum: g.Checksum}
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

// vouchedFor reports whether an admin vouched for the group at this very commit.
func vouchedFor(g lvm.Group) bool {
	return slices.Contains(g.Tags, vouched+strconv.FormatInt(g.Seqno, 10))
}

// same reports whether g is the group at the very commit of z.
func (z knowledge) same(g lvm.Group) bool {
	return z.seqno == g.Seqno && z.checksum == g.Checksum
}
