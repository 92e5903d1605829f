package tracing

import (
	"debug/elf"

	"golang.org/x/sys/unix"
)

// CallOf returns the call of a stopped thread; that of one that was killed meanwhile is zero.
func CallOf(thread int) Call {
	var registers unix.PtraceRegsArm64
	if unix.PtraceGetRegSetArm64(thread, int(elf.NT_PRSTATUS), &registers) != nil {
		return Call{}
	}
	return Call{registers.Regs[8], registers.Regs[0], registers.Regs[1], registers.Regs[2]} // syscall(2)
}
