package lvm_test

import (
	"bytes"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestFormatMark: each logical volume has its own mark, and the mark fits on the device.
func TestFormatMark(t *testing.T) {
	mark := lvm.FormatMark("uuid-a")
	if len(mark) != lvm.FormatMarkSize || bytes.Equal(mark, lvm.FormatMark("uuid-b")) || bytes.Equal(mark, lvm.FormatMark("uuid-")) {
		t.Error("two volumes have one mark")
	}
	for size, want := range map[lvm.Bytes]lvm.Bytes{
		4 * lvm.MiB: 4<<20 - 128<<10 - 4096, lvm.GiB + 1024: 1<<30 - 128<<10 - 4096, 100 << 10: 0, 0: 0, 136 << 10: 4096,
	} {
		if got := lvm.FormatMarkOffset(size); got != want || got != 0 && got > size-lvm.FormatMarkSize {
			t.Errorf("%s: at byte %d, want %d", size, got, want)
		}
	}
	source := lvm.ID{VG: "vg", LV: "v"}
	for _, test := range []struct {
		v    lvm.Volume
		want bool
	}{
		{lvm.Volume{}, true},
		{lvm.Volume{Block: true}, false},
		{lvm.Volume{Block: true, Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}, true},
		{lvm.Volume{Source: source}, false},
		{lvm.Volume{Source: source, Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}, false},
	} {
		if got := test.v.NeedsFormatMark(); got != test.want {
			t.Errorf("%+v: %t", test.v, got)
		}
	}
}
