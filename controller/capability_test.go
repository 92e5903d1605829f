package controller

import "testing"

// TestShowsUnwritten: raw devices, and file systems that could show unwritten blocks after a power cut.
func TestShowsUnwritten(t *testing.T) {
	mount := func(options ...string) usage { return usage{fsType: "ext4", options: options} }
	for _, test := range []struct {
		use  usage
		mkfs string
		want bool
	}{
		{usage{}, "", false},
		{mount(), "", false},
		{mount("noatime", "data=ordered"), "-O 64bit,extent -i 65536", false},
		{usage{raw: true}, "", true},
		{usage{raw: true, fsType: "ext4"}, "", true},
		{mount("noatime", "data=writeback"), "", true},
		{mount("noatime,barrier=0"), "", true},
		{mount("nobarrier"), "", true},
		{mount(), "-i 65536 -O ^has_journal", true},
		{mount(), "-O 64bit,^extent", true},
	} {
		if got := showsUnwritten(test.use, test.mkfs); got != test.want {
			t.Errorf("%+v, %q: %t", test.use, test.mkfs, got)
		}
	}
}
