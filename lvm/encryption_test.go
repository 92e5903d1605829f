package lvm_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

var encrypted = lvm.Class{Group: "vg", Encryption: lvm.EncryptionLUKS2}

// TestEncryptedSizes: a volume fits on the logical volume that it needs, and not on one with an extent less; without encryption both
// sizes are equal.
func TestEncryptedSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := lvm.Group{ExtentSize: lvm.Bytes(1) << rapid.IntRange(17, 34).Draw(t, "extent")}
		size := lvm.Bytes(rapid.Int64Range(1, 1<<50).Draw(t, "size"))
		n := lvm.RoundUpToStripes(g, encrypted.DeviceSize(size), 1)
		if got, less := encrypted.DataSize(g.Bytes(n)), encrypted.DataSize(g.Bytes(n-1)); got < size || less >= max(size, lvm.LUKSMinDataSize) {
			t.Fatalf("%d bytes on %d extents of %s: room for %d, and %d on one less", size, n, g.ExtentSize, got, less)
		}
		if plain := (lvm.Class{}); plain.DeviceSize(size) != size || plain.DataSize(size) != size {
			t.Fatalf("without encryption, %d bytes need %d and offer %d", size, plain.DeviceSize(size), plain.DataSize(size))
		}
	})
	for device, want := range map[lvm.Bytes]lvm.Bytes{0: 0, lvm.LUKSHeaderSize: 0, lvm.LUKSHeaderSize + lvm.LUKSMinDataSize - 1: 0, 20 * lvm.MiB: 4 * lvm.MiB} {
		if got := encrypted.DataSize(device); got != want {
			t.Errorf("%s offer %s, want %s", device, got, want)
		}
	}
	if got := encrypted.DeviceSize(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("the largest size needs %d bytes", got)
	}
}

// TestEncryptedExtents: the limit of a request is that of the volume, not of its logical volume.
func TestEncryptedExtents(t *testing.T) {
	g := lvm.Group{Name: "vg", ExtentSize: 4 * lvm.MiB}
	for _, test := range []struct {
		required, limit lvm.Bytes
		want            lvm.Extents
	}{
		{1, 0, 5},
		{lvm.GiB, 0, 256 + 4},
		{lvm.GiB, lvm.GiB, 256 + 4},
		{lvm.GiB + 1, lvm.GiB + 4*lvm.MiB, 257 + 4},
		{0, 11 * lvm.MiB, 2 + 4},
		{0, math.MaxInt64, 256 + 4},
	} {
		spec := lvm.Spec{Name: "a", Class: encrypted, Required: test.required, Limit: test.limit}
		if n, err := spec.Extents(g); err != nil || n != test.want {
			t.Errorf("required %d, limit %d: %d extents, %v; want %d", test.required, test.limit, n, err, test.want)
		}
	}
	for _, test := range [][2]lvm.Bytes{{lvm.GiB + 1, lvm.GiB + 2}, {0, 3 * lvm.MiB}, {math.MaxInt64, math.MaxInt64}} {
		spec := lvm.Spec{Name: "a", Class: encrypted, Required: test[0], Limit: test[1]}
		if n, err := spec.Extents(g); lvm.KindOf(err) != lvm.KindOutOfRange {
			t.Errorf("required %d, limit %d: %d extents, %v", test[0], test[1], n, err)
		}
	}
}

// TestEncryptionTags: the driver ignores volumes with an encryption that it does not know, and those without room for a header.
func TestEncryptionTags(t *testing.T) {
	g := lvm.Group{UUID: "QyFKbl-1LKa-dXZa-eERa-YiKA-CJ4f-AZZZZZ", Name: "vg", ExtentSize: 4 * lvm.MiB}
	tags := lvm.VolumeTags(lvm.Volume{ID: lvm.ID{VG: g.UUID, LV: "v-1"}, Name: "v", Class: encrypted, State: lvm.StateReady})
	v, _ := fixture.Decoded(g, lvm.LV{Name: "v-1", Extents: 6, Tags: tags}).AsVolume()
	if v.Class.Encryption != lvm.EncryptionLUKS2 || v.Size != 8*lvm.MiB || v.DeviceSize() != 24*lvm.MiB {
		t.Errorf("%+v", v)
	}
	if fixture.Decoded(g, lvm.LV{Name: "v-1", Extents: 4, Tags: tags}).CheckTags() == nil {
		t.Error("a volume without room for its header is used")
	}
	other := lvm.VolumeTags(lvm.Volume{ID: lvm.ID{VG: g.UUID, LV: "v-1"}, Name: "v", Class: lvm.Class{Encryption: "luks3"}, State: lvm.StateReady})
	if fixture.Decoded(g, lvm.LV{Name: "v-1", Extents: 6, Tags: other}).CheckTags() == nil {
		t.Error("a volume with an unknown encryption is used")
	}
	sn := lvm.Snapshot{ID: lvm.ID{VG: g.UUID, LV: "s-1"}, Name: "s", Source: v.ID, State: lvm.StateReady, Encryption: lvm.EncryptionLUKS2}
	if got, is := fixture.Decoded(g, lvm.LV{Name: "s-1", Extents: 6, Tags: lvm.SnapshotTags(sn)}).AsSnapshot(); !is || got.Encryption != sn.Encryption || got.Size != 8*lvm.MiB {
		t.Errorf("%+v, %v", got, is)
	}
}
