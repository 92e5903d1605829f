package node

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

const (
	btrfsMark   = "_BHRfS_M"
	imsmVersion = imsmMark + "1.3.00"
	// bcacheSuper is what make-bcache -B writes at byte 4096, up to the UUID.
	bcacheSuper = "\x2b\x66\x0e\x2e\x8c\x45\x66\x23\x08\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"
)

func TestHostSignature(t *testing.T) {
	const pv, md, ddf, imsm = "begins like an LVM physical volume", "a member of an md array", "ends like a member of a DDF array", "ends like a member of an IMSM array"
	for name, c := range map[string]struct {
		at   int64 // negative: before the end
		mark string
		want string
	}{
		"nothing":                             {0, "", ""},
		"LVM in the first sector":             {0, lvmMark, pv},
		"LVM in the last sector of a label":   {1536, lvmMark, pv},
		"LVM beyond the label":                {2048, lvmMark, ""},
		"LVM not at a sector":                 {8, lvmMark, ""},
		"md 1.1":                              {0, mdMark, "begins like " + md},
		"md 1.2":                              {4096, mdMark, "begins like " + md},
		"md 0.90":                             {-64 << 10, mdMark, "ends like " + md},
		"md 1.0":                              {-8 << 10, mdMark, "ends like " + md},
		"md elsewhere":                        {-4 << 10, mdMark, ""},
		"bcache":                              {4096, bcacheSuper, "begins like a bcache device"},
		"bcache elsewhere":                    {0, bcacheSuper, ""},
		"btrfs":                               {65600, btrfsMark, "begins like a btrfs file system"},
		"cut short":                           {65600, "_BHRfS", ""},
		"DDF":                                 {-512, ddfMark, ddf},
		"DDF, swapped":                        {-512, ddfSwapped, ddf},
		"DDF before 128 KiB":                  {-257 * 512, ddfMark, ddf},
		"DDF before 128 KiB, swapped":         {-257 * 512, ddfSwapped, ddf},
		"DDF elsewhere":                       {-1024, ddfMark, ""},
		"IMSM":                                {-1024, imsmVersion, imsm},
		"IMSM, with sectors of 4 KiB":         {-8 << 10, imsmVersion, imsm},
		"IMSM elsewhere":                      {-512, imsmVersion, ""},
		"LUKS, which nothing opens by itself": {0, "LUKS\xba\xbe", ""},
	} {
		f := newFake()
		if c.at < 0 {
			c.at += int64(lvm.GiB)
		}
		f.onDevice = map[int64]string{c.at: c.mark}
		if got := f.server().readHostSignature("/dev/dm-0"); got != c.want {
			t.Errorf("%s: readHostSignature = %q, want %q", name, got, c.want)
		}
		if f.reads > 5 {
			t.Errorf("%s: %d reads of the device", name, f.reads)
		}
	}
}

// A signature is reported of a volume that is published as a raw block volume, and of no other: a file system is the driver's.
func TestHealthReportsSignatures(t *testing.T) {
	for name, c := range map[string]struct {
		kind    mount.PathKind
		content map[int64]string
		want    string // "": nothing is found
	}{
		"raw, with LVM":         {mount.PathDevice, map[int64]string{512: lvmMark}, "begins like an LVM physical volume"},
		"raw, md 1.0":           {mount.PathDevice, map[int64]string{1<<30 - 8<<10: mdMark}, "ends like a member of an md array"},
		"raw, without":          {mount.PathDevice, map[int64]string{512: "postgres"}, ""},
		"a mounted file system": {mount.PathEmptyDir, map[int64]string{65600: btrfsMark, 1<<30 - 8<<10: mdMark}, ""},
	} {
		f := newFake()
		f.onDevice, f.kinds["/pod/volume"], f.mounts["/pod/volume"] = c.content, c.kind, &mount.Entry{}
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
	for size, want := range map[int64][]int64{
		128 << 10:       {64 << 10, 120 << 10},
		128<<10 + 512:   {64 << 10, 120 << 10},
		192<<10 - 512:   {64 << 10, 192<<10 - 12<<10},
		1<<30 + 4<<10:   {1<<30 - 64<<10, 1<<30 - 4<<10},
		1<<30 + 63<<10:  {1<<30 - 64<<10, 1<<30 + 52<<10},
		1<<30 + 127<<10: {1 << 30, 1<<30 + 116<<10},
	} {
		var got []int64
		for _, s := range tailSignatures(size) {
			if s.what == mdMember {
				got = append(got, s.offset)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("md's superblocks on %d bytes are at %d, want %d", size, got, want)
		}
	}
}

// TestSignaturesAscend: otherwise they are not in what was read last.
func TestSignaturesAscend(t *testing.T) {
	ascend := func(a, b signature) int { return cmp.Compare(a.offset, b.offset) }
	if !slices.IsSortedFunc(headSignatures, ascend) {
		t.Errorf("at the beginning: %v", headSignatures)
	}
	for size := int64(1 << 20); size < 1<<20+128<<10; size += 512 {
		if !slices.IsSortedFunc(tailSignatures(size), ascend) {
			t.Errorf("at the end of %d bytes: %v", size, tailSignatures(size))
		}
	}
}

// TestTailSignaturesAreLibblkids: libblkid finds the metadata of RAID controllers in the places where the driver does. util-linux is on each Debian.
func TestTailSignaturesAreLibblkids(t *testing.T) {
	const size = 8 << 20
	for name, c := range map[string]struct {
		before         int64
		mark, wantType string
	}{
		"DDF":                         {512, ddfMark, "ddf_raid_member"},
		"DDF, swapped":                {512, ddfSwapped, "ddf_raid_member"},
		"DDF before 128 KiB":          {257 * 512, ddfMark, "ddf_raid_member"},
		"DDF before 128 KiB, swapped": {257 * 512, ddfSwapped, "ddf_raid_member"},
		"IMSM":                        {1024, imsmVersion, "isw_raid_member"},
	} {
		image := filepath.Join(t.TempDir(), "image")
		data := make([]byte, size)
		copy(data[size-c.before:], c.mark)
		if err := os.WriteFile(image, data, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "blkid", "-p", "-o", "value", "-s", "TYPE", image).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.wantType {
			t.Errorf("%s: blkid = %q, %v, want %s", name, got, err, c.wantType)
		}
		f := newFake()
		f.onDevice = map[int64]string{size - c.before: c.mark}
		if f.server().findSignature("/dev/dm-0", size, tailSignatures(size)) == "" {
			t.Errorf("%s: the driver finds nothing", name)
		}
	}
}

// A node without raw block volumes asks for no volume's device and reads none: each scrape of the metrics does this.
func TestSignaturesCostNothingWithoutRawVolumes(t *testing.T) {
	f := newFake()
	f.onDevice, f.mounts["/pod/volume"] = map[int64]string{0: lvmMark}, &mount.Entry{}
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
		f.onDevice, f.kinds["/pod/volume"], f.mounts["/pod/volume"] = map[int64]string{0: lvmMark}, mount.PathDevice, &mount.Entry{}
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
