/*
 * Loaded into user-mode Linux by LD_PRELOAD.
 *
 * fallocate64: the block driver of a node zeroes a range of its disk's file with FALLOC_FL_ZERO_RANGE, which allocates the whole range; a
 * hole reads as zeroes too and takes no space.
 *
 * ptrace: up to Linux 6.12, user-mode Linux has room for the registers of a processor without AMX only. The machine's kernel accepts
 * nothing but the whole set (EFAULT), so the rest is filled with what it has.
 *
 * Constants: include/uapi/linux/falloc.h, ptrace.h, elf.h; arch/x86/entry/syscalls/syscall_64.tbl.
 */
enum { KEEP_SIZE = 0x01, PUNCH_HOLE = 0x02, ZERO_RANGE = 0x10 };
enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202, BAD_ADDRESS = 14 };
enum { SYS_ptrace = 101, SYS_fallocate = 285 };

struct iovec { void *base; unsigned long length; };

extern int *__errno_location(void);
extern void *memcpy(void *to, const void *from, unsigned long bytes);

/* The negative error is in the result: a signal's handler can change errno before it is read. */
static long kernel(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
	return result;
}

static long answer(long result)
{
	if (result >= 0)
		return result;
	*__errno_location() = (int)-result;
	return -1;
}

int fallocate64(int fd, int mode, long offset, long length)
{
	if (mode & ZERO_RANGE)
		mode = PUNCH_HOLE | KEEP_SIZE;
	return (int)answer(kernel(SYS_fallocate, fd, mode, offset, length));
}

static long set_all_registers(long pid, const struct iovec *some)
{
	static char registers[1 << 16]; /* a node has one processor; its kernel's stack is too small for this */
	struct iovec all = { registers, sizeof registers };
	long result = kernel(SYS_ptrace, GETREGSET, pid, X86_XSTATE, (long)&all);

	if (result < 0)
		return result;
	if (some->length < all.length)
		memcpy(registers, some->base, some->length);
	return kernel(SYS_ptrace, SETREGSET, pid, X86_XSTATE, (long)&all);
}

long ptrace(int request, long pid, long address, void *data)
{
	long word = 0;
	int peeks = request >= PEEKTEXT && request <= PEEKUSER; /* ptrace(2): the C library returns the word */
	long result = kernel(SYS_ptrace, request, pid, address, (long)(peeks ? &word : data));

	if (result == -BAD_ADDRESS && request == SETREGSET && address == X86_XSTATE)
		result = set_all_registers(pid, data);
	if (result < 0 || !peeks)
		return answer(result);
	*__errno_location() = 0;
	return word;
}
