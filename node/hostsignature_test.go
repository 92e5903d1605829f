package node

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

func at(offset int, mark string) []byte { return append(make([]byte, offset), mark...) }

func TestHostSignature(t *testing.T) {
	for name, c := range map[string]struct {
		head []byte
		want string
	}{
		"nothing":                             {nil, ""},
		"zeroes":                              {make([]byte, signatureSpan), ""},
		"LVM in the first sector":             {at(0, "LABELONE"), "an LVM physical volume"},
		"LVM in the last sector of a label":   {at(1536, "LABELONE"), "an LVM physical volume"},
		"LVM beyond the label":                {at(2048, "LABELONE"), ""},
		"LVM not at a sector":                 {at(8, "LABELONE"), ""},
		"md 1.1":                              {at(0, "\xfc\x4e\x2b\xa9"), "a member of an md array"},
		"md 1.2":                              {at(4096, "\xfc\x4e\x2b\xa9"), "a member of an md array"},
		"btrfs":                               {at(65600, "_BHRfS_M"), "a btrfs file system"},
		"cut short":                           {at(65600, "_BHRfS"), ""},
		"LUKS, which nothing opens by itself": {at(0, "LUKS\xba\xbe"), ""},
	} {
		if got := matchHostSignature(c.head); got != c.want {
			t.Errorf("%s: hostSignature = %q, want %q", name, got, c.want)
		}
	}
}

// A signature is reported of a volume that is published as a raw block volume, and of no other: a file system is the driver's.
func TestHealthReportsSignatures(t *testing.T) {
	for name, c := range map[string]struct {
		kind mount.PathKind
		head []byte
		end  int64  // an offset with md's mark
		want string // "": nothing is found
	}{
		"raw, with LVM":         {mount.PathDevice, at(512, "LABELONE"), 0, "begins like an LVM physical volume"},
		"raw, md 0.90":          {mount.PathDevice, nil, 1<<30 - 64<<10, "ends like a member of an md array"},
		"raw, md 1.0":           {mount.PathDevice, nil, 1<<30 - 8<<10, "ends like a member of an md array"},
		"raw, md elsewhere":     {mount.PathDevice, nil, 1<<30 - 4<<10, ""},
		"raw, without":          {mount.PathDevice, at(512, "postgres"), 0, ""},
		"a mounted file system": {mount.PathEmptyDir, at(65600, "_BHRfS_M"), 1<<30 - 8<<10, ""},
	} {
		f := newFake()
		f.head, f.kinds["/pod/volume"], f.mounts["/pod/volume"] = c.head, c.kind, &mount.Entry{}
		f.ends = map[int64][]byte{c.end: mdMagic}
		found, err := f.server().Health(t.Context())
		if err != nil || (len(found) == 1) != (c.want != "") {
			t.Errorf("%s: Health = %v, %v", name, found, err)
			continue
		}
		if len(found) == 1 && (found[0].Type != lvm.ConditionSignatureFound || found[0].Cause != c.want || found[0].Volume.ID != testID || !strings.Contains(found[0].Text, c.want+",")) {
			t.Errorf("%s: Health = %+v", name, found)
		}
	}
}

// TestMDAtEnd: sizes that are no multiples of what md reserves.
func TestMDAtEnd(t *testing.T) {
	for size, want := range map[lvm.Bytes][]int64{
		128 << 10:       {64 << 10, 120 << 10},
		128<<10 + 512:   {64 << 10, 120 << 10},
		192<<10 - 512:   {64 << 10, 192<<10 - 12<<10},
		lvm.GiB + 4<<10: {1<<30 - 64<<10, 1<<30 - 4<<10},
	} {
		if got := mdEndOffsets(size); !slices.Equal(got, want) {
			t.Errorf("mdEndOffsets(%d) = %d, want %d", size, got, want)
		}
	}
}

// A node without raw block volumes asks for no volume's device and reads none: each scrape of the metrics does this.
func TestSignaturesCostNothingWithoutRawVolumes(t *testing.T) {
	f := newFake()
	f.head, f.mounts["/pod/volume"] = at(0, "LABELONE"), &mount.Entry{}
	asked := 0
	f.during = func(string) { asked++ }
	if found, err := f.server().Health(t.Context()); err != nil || len(found) != 0 || asked != 0 {
		t.Errorf("Health = %v, %v, with %d readings", found, err, asked)
	}
}

// An unresponsive device delays one check for a few seconds, and no later one.
func TestSignatureOfADeviceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.head, f.kinds["/pod/volume"], f.mounts["/pod/volume"] = at(0, "LABELONE"), mount.PathDevice, &mount.Entry{}
		answer := make(chan struct{})
		f.during = func(string) { <-answer }
		s := f.server()
		for range 2 {
			if found, err := s.Health(t.Context()); err != nil || len(found) != 0 {
				t.Errorf("while the device hangs: Health = %v, %v", found, err)
			}
		}
		close(answer)
		synctest.Wait()
		if found, err := s.Health(t.Context()); err != nil || len(found) != 1 {
			t.Errorf("when the device answers again: Health = %v, %v", found, err)
		}
	})
}
