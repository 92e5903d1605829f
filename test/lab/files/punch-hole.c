/*
 * Loaded into user-mode Linux by LD_PRELOAD. The block driver of a node zeroes a range of its disk's file with
 * FALLOC_FL_ZERO_RANGE, which allocates the whole range; a hole reads as zeroes too and takes no space.
 * Constants: include/uapi/linux/falloc.h, arch/x86/entry/syscalls/syscall_64.tbl.
 */
enum { KEEP_SIZE = 0x01, PUNCH_HOLE = 0x02, ZERO_RANGE = 0x10, SYS_fallocate = 285 };

extern long syscall(long number, ...);

int fallocate64(int fd, int mode, long offset, long length)
{
	if (mode & ZERO_RANGE)
		mode = PUNCH_HOLE | KEEP_SIZE;
	return (int)syscall(SYS_fallocate, fd, mode, offset, length);
}
