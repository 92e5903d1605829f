package mount

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSplitFlags(t *testing.T) {
	const label = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for _, c := range []struct {
		options []string
		flags   uintptr
		data    string
	}{
		{nil, 0, ""},
		{[]string{"defaults"}, 0, ""},
		{[]string{"errors=remount-ro", "noatime,ro"}, unix.MS_NOATIME | unix.MS_RDONLY, "errors=remount-ro"},
		{[]string{"ro", "rw", "nosuid,suid", "dev,nodev"}, unix.MS_NODEV, ""},
		{[]string{label + ",noexec", "discard"}, unix.MS_NOEXEC, label + ",discard"},
		{[]string{"lazytime", "nosymfollow,iversion,noiversion"}, unix.MS_LAZYTIME | unix.MS_NOSYMFOLLOW, ""},
	} {
		if flags, data := splitFlags(c.options); flags != c.flags || data != c.data {
			t.Errorf("%q: flags %#x, data %q; want %#x, %q", c.options, flags, data, c.flags, c.data)
		}
	}
}
