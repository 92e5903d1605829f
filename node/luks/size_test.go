package luks

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestDeviceSize(t *testing.T) {
	for _, test := range []struct{ volume, extent, want lvm.Bytes }{
		{lvm.GiB, 4 * lvm.MiB, lvm.GiB + 16*lvm.MiB},
		{lvm.GiB + 1, 4 * lvm.MiB, lvm.GiB + 20*lvm.MiB},
		{1, 4 * lvm.MiB, 20 * lvm.MiB},
		{0, lvm.MiB, 20 * lvm.MiB},
		{lvm.GiB, 64 * lvm.MiB, lvm.GiB + 64*lvm.MiB},
	} {
		if got, err := DeviceSize(test.volume, test.extent); err != nil || got != test.want {
			t.Errorf("DeviceSize(%d, %d) = %d, %v, want %d", test.volume, test.extent, got, err, test.want)
		}
	}
	for _, test := range [][2]lvm.Bytes{{-1, lvm.MiB}, {lvm.GiB, 0}, {math.MaxInt64, 4 * lvm.MiB}, {math.MaxInt64 - HeaderSize, lvm.MiB}} {
		if got, err := DeviceSize(test[0], test[1]); lvm.KindOf(err) != lvm.KindOutOfRange {
			t.Errorf("DeviceSize(%d, %d) = %d, %v, want an error", test[0], test[1], got, err)
		}
	}
}

// TestDeviceSizeIsLeast: the volume fits, and it does not with an extent less.
func TestDeviceSizeIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		extent := lvm.Bytes(1) << rapid.IntRange(17, 34).Draw(t, "extent")
		volume := lvm.Bytes(rapid.Int64Range(0, 1<<50).Draw(t, "volume"))
		device, err := DeviceSize(volume, extent)
		if err != nil || device%extent != 0 || DataSize(device) < volume || DataSize(device-extent) >= max(volume, MinDataSize) {
			t.Fatalf("%d bytes in extents of %d: %d, %v, with room for %d, and %d in an extent less", volume, extent, device, err, DataSize(device), DataSize(device-extent))
		}
	})
}

func TestDataSizeOfASmallDevice(t *testing.T) {
	for device, want := range map[lvm.Bytes]lvm.Bytes{0: 0, HeaderSize: 0, HeaderSize + MinDataSize - 1: 0, HeaderSize + MinDataSize: MinDataSize} {
		if got := DataSize(device); got != want {
			t.Errorf("DataSize(%d) = %d, want %d", device, got, want)
		}
	}
}

func TestSectorSize(t *testing.T) {
	for _, test := range []struct {
		block         bool
		logical, want int
	}{{false, 512, 4096}, {false, 4096, 4096}, {true, 512, 512}, {true, 4096, 4096}} {
		if got := sectorSize(test.block, test.logical); got != test.want {
			t.Errorf("sectorSize(%t, %d) = %d, want %d", test.block, test.logical, got, test.want)
		}
	}
}

// TestMarkIsWhereNothingElseLies: clearing superblocks must leave the format mark, and no mark may touch key slots.
func TestMarkIsWhereNothingElseLies(t *testing.T) {
	for _, size := range []lvm.Bytes{MinDataSize, 5 * lvm.MiB, 100 * lvm.MiB, lvm.TiB} {
		for _, s := range superblockSpans(size) {
			at := HeaderSize + s.at
			if at < formatMarkOffset+markBlock && formatMarkOffset < at+s.length {
				t.Errorf("of %s, the span at %d covers the mark", size, s.at)
			}
			if s.at < 0 || s.at+s.length > size {
				t.Errorf("of %s, the span at %d is outside", size, s.at)
			}
		}
	}
	if stateMarkOffset < headerBytes+slotsSize || stateMarkOffset+markBlock > HeaderSize || stateMarkOffset%eraseChunk != 0 || HeaderSize%eraseChunk != 0 {
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
