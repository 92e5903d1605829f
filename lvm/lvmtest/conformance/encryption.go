package conformance

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testEncrypted: the logical volume of an encrypted volume has room for the header, its user gets what was requested, and capacity
// counts the header. A copy has the encryption of its source.
func testEncrypted(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	spec := b.Spec("encrypted", 10*lvm.MiB)
	spec.Class.Encryption = lvm.EncryptionLUKS2
	before := d.MustCapacity(t, spec.Class)
	v := d.MustCreate(t, spec)
	if lv := hosttest.FindLV(t, b.ReadGroup(t), v.ID.LV); v.Size != 12*lvm.MiB || v.Class.Encryption != lvm.EncryptionLUKS2 || lv.Extents != 7 {
		t.Errorf("created %+v on %d extents of %s", v, lv.Extents, lvmtest.ExtentSize)
	}
	plain, wide := spec, spec
	plain.Class.Encryption, wide.Required = lvm.EncryptionNone, 13*lvm.MiB
	d.Counted(t, "the same, and refused requests", 0, func() {
		if again := d.MustCreate(t, spec); again != v {
			t.Errorf("created again: %+v, want %+v", again, v)
		}
		for what, other := range map[string]lvm.Spec{"without encryption": plain, "larger": wide} {
			hosttest.Refused(t, what, lvm.KindExists)(d.Create(t.Context(), other))
		}
		hosttest.Refused(t, "activation as a volume without encryption", lvm.KindConflict)(d.Activate(t.Context(), v.ID, v.UUID))
	})
	if _, device, err := d.ActivateAs(t.Context(), v.ID, v.UUID, lvm.EncryptionLUKS2); err != nil || !strings.HasPrefix(device, "/dev/dm-") {
		t.Errorf("activated as %q, %v", device, err)
	}
	v = testGrow(t, d, v, lvmtest.ExtentSize)
	rest := d.MustCapacity(t, spec.Class)
	if rest.Largest != before.Largest-v.DeviceSize() {
		t.Errorf("the largest volume was %s, and is %s beside one on %s", before.Largest, rest.Largest, v.DeviceSize())
	}
	spec.Name, spec.Required = "too large", rest.Largest+1
	hosttest.Refused(t, "one byte more than the largest", lvm.KindInsufficientCapacity)(d.Create(t.Context(), spec))
	spec.Name, spec.Required = "large", rest.Largest
	if large := d.MustCreate(t, spec); large.Size != rest.Largest {
		t.Errorf("requested the largest, %s, got %s", rest.Largest, large.Size)
	}
	b.DeleteAll(t, d)
	d.WaitWiped(t)
	testEncryptedCopies(t, b, d)
}

func testEncryptedCopies(t *testing.T, b hosttest.Fixture, d *hosttest.Driver) {
	t.Helper()
	thin := func(name string, source lvm.ID, encryption lvm.Encryption) lvm.Spec {
		spec := b.Thin(name, 0, source)
		spec.Class.Encryption = encryption
		return spec
	}
	first := thin("origin", lvm.ID{}, lvm.EncryptionLUKS2)
	first.Required = 8 * lvm.MiB
	origin := d.MustCreate(t, first)
	s := d.MustSnapshot(t, "snap", origin.ID)
	if s.Size != origin.Size || s.Encryption != lvm.EncryptionLUKS2 {
		t.Errorf("the snapshot is %+v, of %+v", s, origin)
	}
	for what, source := range map[string]lvm.ID{"snapshot": s.ID, "volume": origin.ID} {
		hosttest.Refused(t, "a copy of an encrypted "+what+" without encryption", lvm.KindInvalid)(d.Create(t.Context(), thin("plain of a "+what, source, lvm.EncryptionNone)))
		if c := d.MustCreate(t, thin("copy of a "+what, source, lvm.EncryptionLUKS2)); c.Size != origin.Size || c.Class.Encryption != lvm.EncryptionLUKS2 {
			t.Errorf("the copy of a %s is %+v, of %+v", what, c, origin)
		}
	}
	first = thin("plain", lvm.ID{}, lvm.EncryptionNone)
	first.Required = 8 * lvm.MiB
	plain := d.MustCreate(t, first)
	hosttest.Refused(t, "an encrypted copy of a volume without encryption", lvm.KindInvalid)(d.Create(t.Context(), thin("encrypted", plain.ID, lvm.EncryptionLUKS2)))
	b.DeleteAll(t, d)
	b.RemovePool(t)
}
