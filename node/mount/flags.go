package mount

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// flagOptions are the mount options that mount(2) takes as flags.
var flagOptions = map[string]uintptr{
	"ro": unix.MS_RDONLY, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS,
	"dirsync": unix.MS_DIRSYNC, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME,
	"strictatime": unix.MS_STRICTATIME, "lazytime": unix.MS_LAZYTIME, "nosymfollow": unix.MS_NOSYMFOLLOW, "iversion": unix.MS_I_VERSION,
}

// opposites are the mount options that clear the flag of another one.
var opposites = map[string]string{
	"rw": "ro", "suid": "nosuid", "dev": "nodev", "exec": "noexec", "async": "sync", "atime": "noatime", "diratime": "nodiratime",
	"norelatime": "relatime", "nostrictatime": "strictatime", "nolazytime": "lazytime",
	"noiversion": "iversion",
}

// splitFlags returns mount options as mount(2) takes them: flags, and the rest for the file system. Among options that exclude each other,
// the last one counts, as for mount(8).
func splitFlags(options []string) (flags uintptr, data string) {
	rest := slices.DeleteFunc(SplitOptions(options), func(option string) bool {
		set, is := flagOptions[option]
		cleared, clears := opposites[option]
		flags = flags&^flagOptions[cleared] | set
		return is || clears || option == "defaults"
	})
	return flags, strings.Join(rest, ",")
}
