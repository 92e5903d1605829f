package tracing

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// CallOf returns the call of a stopped thread; that of one that was killed meanwhile is zero. It reads each register by its offset in struct
// user (Linux, arch/x86/include/asm/user_64.h): user-mode Linux has PTRACE_PEEKUSER, but not every request that reads all registers at once.
func CallOf(thread int) Call {
	const origRax, rdi, rsi, rdx = 15 * 8, 14 * 8, 13 * 8, 12 * 8
	return Call{register(thread, origRax), register(thread, rdi), register(thread, rsi), register(thread, rdx)}
}

func register(thread int, offset uintptr) uint64 {
	word := make([]byte, 8)
	if _, err := unix.PtracePeekUser(thread, offset, word); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(word)
}
