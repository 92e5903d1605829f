package luks

import (
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestMarkIsWhereNothingElseLies: zeroing the places of superblocks must not touch the format mark, and no mark may touch key
// slots.
func TestMarkIsWhereNothingElseLies(t *testing.T) {
	for _, size := range []lvm.Bytes{lvm.LUKSMinDataSize, 5 * lvm.MiB, 100 * lvm.MiB, lvm.TiB} {
		for _, s := range dm.SuperblockSpans(size) {
			at := lvm.LUKSHeaderSize + s.At
			if at < formatMarkOffset+markBlock && formatMarkOffset < at+s.Length {
				t.Errorf("of %s, the span at %d covers the mark", size, s.At)
			}
			if s.At < 0 || s.At+s.Length > size {
				t.Errorf("of %s, the span at %d is outside", size, s.At)
			}
		}
	}
	if stateMarkOffset < headerBytes+slotsSize || stateMarkOffset+markBlock > lvm.LUKSHeaderSize || stateMarkOffset%eraseChunk != 0 || lvm.LUKSHeaderSize%eraseChunk != 0 {
		t.Error("the state mark touches key slots or data, or Erase would overwrite it")
	}
}

func TestMarks(t *testing.T) {
	none := make([]byte, markBlock)
	mark := func(m Mark) []byte { return encodeMark(m, "uuid") }
	torn := mark(MarkFormatting)
	torn[100] = 1
	for name, test := range map[string]struct {
		format, state []byte
		want          Mark
	}{
		"none":                      {none, none, MarkNone},
		"formatting":                {mark(MarkFormatting), none, MarkFormatting},
		"formatting, formatted":     {mark(MarkFormatting), mark(MarkFormatted), MarkFormatting},
		"formatted":                 {none, mark(MarkFormatted), MarkFormatted},
		"erased":                    {none, mark(MarkErased), MarkErased},
		"erased while formatting":   {mark(MarkFormatting), mark(MarkErased), MarkErased},
		"of another volume":         {encodeMark(MarkFormatting, "other"), encodeMark(MarkErased, "other"), MarkNone},
		"damaged":                   {torn, none, MarkNone},
		"a tenant's, in the data":   {mark(MarkErased), none, MarkNone},
		"too short to hold any":     {nil, nil, MarkNone},
		"the rest of the block set": {append(mark(MarkFormatting)[:markSize:markSize], 1), none, MarkFormatting},
	} {
		if got := decodeMarks(test.format, test.state, "uuid"); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestFormatMarkOfAny: the format mark of each logical volume is one, as long as it is whole.
func TestFormatMarkOfAny(t *testing.T) {
	torn := encodeMark(MarkFormatting, "another")
	torn[markSize-1]++
	for name, test := range map[string]struct {
		block []byte
		want  bool
	}{
		"its own":         {encodeMark(MarkFormatting, "uuid"), true},
		"another's":       {encodeMark(MarkFormatting, "another"), true},
		"torn":            {torn, false},
		"cut":             {torn[:markSize-1], false},
		"another mark":    {encodeMark(MarkFormatted, "another"), false},
		"none":            {make([]byte, markBlock), false},
		"words alone":     {[]byte(markWords[MarkFormatting]), false},
		"words and zeros": {append([]byte(markWords[MarkFormatting]), make([]byte, markSize)...), false},
	} {
		if got := isFormatMark(test.block); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
