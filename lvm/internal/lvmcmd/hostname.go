package lvmcmd

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// poolHost is what LVM takes for the machine's name while it makes a thin pool: it notes that on each volume that it makes
// (lvs -o lv_host). The first of them, which is to become its spare for pool metadata, it makes without any tag and under a
// name of its own choice; if it is killed at that, the note alone proves that the volume is nobody's.
const poolHost = "pool.nodelvm.io"

// makesPool tells whether a command is one of poolArgs.
func makesPool(argv []string) bool {
	i := slices.Index(argv, "--type")
	return argv[0] == "lvcreate" && i >= 0 && i+1 < len(argv) && argv[i+1] == "thin-pool"
}

// withHostname runs do on a thread for which, and for the processes that it starts, the machine has this name; for nobody else.
func withHostname(name string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()              // for good: the thread ends with this
		if unix.Gettid() == unix.Getpid() { // but for the process's first thread, which cannot end
			defer runtime.UnlockOSThread()
			done <- withHostname(name, do) // on another one, as this one is taken
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			done <- fmt.Errorf("lvm cannot be given a host name of its own: unshare: %w", err)
			return
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			done <- fmt.Errorf("lvm cannot be given a host name of its own: sethostname: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}
