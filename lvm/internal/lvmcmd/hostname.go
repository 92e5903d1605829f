package lvmcmd

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// poolHost is the host name that LVM sees while it creates a thin pool. LVM records it on each volume (lvs -o lv_host). It
// creates the first, which becomes its spare for pool metadata, without a tag and with a name of its choice. If lvm is killed
// then, only the host name proves that no user has the volume.
const poolHost = "pool.nodelvm.io"

// makesPool reports whether a command is one of poolArgs.
func makesPool(argv []string) bool {
	i := slices.Index(argv, "--type")
	return argv[0] == "lvcreate" && i >= 0 && i+1 < len(argv) && argv[i+1] == "thin-pool"
}

// withHostname runs do on a thread that, with the processes that it starts, has another host name; no other thread has it.
func withHostname(name string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()              // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() { // except the process's first thread, which cannot end
			defer runtime.UnlockOSThread()
			done <- withHostname(name, do) // on another thread, as this one is locked
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			done <- fmt.Errorf("cannot give lvm a separate host name: unshare: %w", err)
			return
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			done <- fmt.Errorf("cannot give lvm a separate host name: sethostname: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}
