/*
 * Lets the processes of a node read the clock without a system call.
 *
 * User-mode Linux implements the vDSO's clock_gettime as a system call. That takes 20 to 35 us, because a process and its kernel are two
 * processes of this machine. Go programs read the clock several hundred times a second even if they do nothing else.
 *
 * Usage: clock, in the background; clock check
 *
 * This program replaces the function in the page that all processes of a node share. The new function computes the time from the
 * processor's counter (TSC). Each second the program compares the result with the kernel's clocks, and corrects it. The function makes the
 * system call for another clock than these two, and if the last correction is more than LIMIT seconds old. If the two differ by more than STEP
 * nanoseconds, the program measures the counter's rate again, and the function makes system calls meanwhile.
 *
 * The counter has a constant rate on x86 processors since 2008. A node has one processor, and its processes run on one processor of this
 * machine, so the function needs no other counter.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, SECOND = 1000000000, LIMIT = 10, STEP = 1000000, RANGE = 400000, TRIES = 5 };

/* What the function computes the time from: ns[clock] + (counter - tsc) * mult / 2^32, in nanoseconds. */
struct line {
	uint32_t seq, unused;	/* seq is odd while the others change */
	uint64_t tsc, limit;	/* the counter at the last correction; how far it may be ahead of that */
	uint64_t mult;
	uint64_t ns[2];		/* CLOCK_REALTIME, CLOCK_MONOTONIC */
};

extern const char function[], line_in_function[], function_end[];
__asm__(
	".balign 16\n"
	"function:\n"
	"	cmp	$1, %edi\n"
	"	ja	2f\n"
	"	mov	%edi, %edi\n"
	"1:	mov	line_in_function(%rip), %r8d\n"
	"	test	$1, %r8d\n"
	"	jne	2f\n"
	"	lfence\n"
	"	rdtsc\n"
	"	shl	$32, %rdx\n"
	"	or	%rdx, %rax\n"
	"	sub	line_in_function+8(%rip), %rax\n"
	"	cmp	line_in_function+16(%rip), %rax\n"	/* unsigned: also if the counter went back */
	"	ja	2f\n"
	"	mulq	line_in_function+24(%rip)\n"
	"	shrd	$32, %rdx, %rax\n"
	"	lea	line_in_function+32(%rip), %rcx\n"
	"	add	(%rcx,%rdi,8), %rax\n"
	"	cmp	line_in_function(%rip), %r8d\n"
	"	jne	1b\n"
	"	xor	%edx, %edx\n"
	"	mov	$1000000000, %ecx\n"
	"	div	%rcx\n"
	"	mov	%rax, (%rsi)\n"
	"	mov	%rdx, 8(%rsi)\n"
	"	xor	%eax, %eax\n"
	"	ret\n"
	"2:	mov	$228, %eax\n"				/* SYS_clock_gettime */
	"	syscall\n"
	"	ret\n"
	".balign 16\n"
	"line_in_function:\n"
	"	.fill	48\n"
	"function_end:\n");

/* The function as user-mode Linux has it: mov $SYS_clock_gettime, %eax; syscall; ret. */
static const char before[] = { 0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0xc3 };

static int memory;		/* /dev/mem */
static uint64_t vdso;		/* the page's address in it */
static uint64_t line_at;	/* address of the function's struct line in it */

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int write_all(const void *from, size_t bytes, uint64_t at)
{
	return pwrite(memory, from, bytes, at) == (ssize_t)bytes ? 0 : -1;
}

static uint64_t counter(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static uint64_t kernel_ns(clockid_t clock)
{
	struct timespec t;

	syscall(SYS_clock_gettime, clock, &t);
	return (uint64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* sample reads a clock of the kernel and the counter at the same time, to within *range counts. */
static uint64_t sample(clockid_t clock, uint64_t *tsc, uint64_t *range)
{
	uint64_t result = 0;

	*range = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t begin = counter(), ns = kernel_ns(clock), end = counter();

		if (end - begin < *range) {
			*range = end - begin;
			*tsc = begin + *range / 2;
			result = ns;
		}
	}
	return result;
}

/* find_vdso finds the page in the node's memory. See pagemap in the kernel's admin guide: bits 0 to 54 are the page's number. */
static int find_vdso(char *page)
{
	const volatile char *mapped = (const char *)getauxval(AT_SYSINFO_EHDR);
	int map = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry;

	memory = open("/dev/mem", O_RDWR);
	if (!mapped || map < 0 || memory < 0 || !*mapped)
		return fail("open /proc/self/pagemap and /dev/mem");
	if (pread(map, &entry, sizeof entry, (uintptr_t)mapped / PAGE * sizeof entry) != sizeof entry)
		return fail("read /proc/self/pagemap");
	vdso = (entry & ((1ULL << 55) - 1)) * PAGE;
	if (pread(memory, page, PAGE, vdso) != PAGE)
		return fail("read /dev/mem");
	if (memcmp(page, (const char *)mapped, PAGE)) {
		fprintf(stderr, "/dev/mem does not have the vDSO at %#lx\n", vdso);
		return 1;
	}
	return 0;
}

/* publish changes the function's line; the order lets a process that reads it meanwhile notice. */
static int publish(struct line *next)
{
	uint32_t odd = next->seq | 1;
	size_t rest = offsetof(struct line, tsc);

	next->seq = odd + 1;
	if (write_all(&odd, sizeof odd, line_at) || write_all((char *)next + rest, sizeof *next - rest, line_at + rest) ||
	    write_all(&next->seq, sizeof next->seq, line_at))
		return fail("write /dev/mem");
	return 0;
}

/*
 * replace writes the new function behind the page's ELF file, and a jump to it over the first instruction of the one before. If an earlier
 * process of this program has done that, it leaves the function, and takes over the line's number.
 */
static int replace(const char *page, struct line *first)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)page;
	size_t size = function_end - function, code = line_in_function - function;
	size_t end = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize; /* the section headers are last */
	size_t place = (end + 63) / 64 * 64;
	const char *old;
	char jump[5] = { 0xe9 };
	int32_t distance;

	if (!header->e_shoff || place + size > PAGE) {
		fprintf(stderr, "the vDSO has no space for a function of %zu bytes: processes make system calls\n", size);
		return 1;
	}
	line_at = vdso + place + code;
	if (!memcmp(page + place, function, code)) {
		first->seq = ((const struct line *)(page + place + code))->seq | 1;
		return publish(first);
	}
	old = memmem(page, end, before, sizeof before);
	if (!old) {
		fprintf(stderr, "the vDSO has another clock_gettime than this program knows: processes make system calls\n");
		return 1;
	}
	distance = place - (old - page + sizeof jump);
	memcpy(jump + 1, &distance, sizeof distance);
	if (write_all(function, size, vdso + place) || write_all(first, sizeof *first, line_at) ||
	    write_all(jump, sizeof jump, vdso + (old - page)))
		return fail("write /dev/mem");
	return 0;
}

static double at(const struct line *l, uint64_t tsc)
{
	return (double)(int64_t)(tsc - l->tsc) * (double)l->mult / 4294967296.0;
}

static uint64_t vdso_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * SECOND + t.tv_nsec;
}

/* check compares the function with the kernel's clocks, and ten calls of it with one system call. */
static int check(void)
{
	enum { CALLS = 1000 };
	uint64_t begin, call, function_calls;
	int bad = 0;

	for (clockid_t clock = CLOCK_REALTIME; clock <= CLOCK_MONOTONIC; clock++) {
		for (int i = 0; i < CALLS; i++) {
			uint64_t first = kernel_ns(clock), t = vdso_ns(clock), last = kernel_ns(clock);

			if (t + STEP / 5 < first || t > last + STEP / 5) {
				printf("clock %d: %lu ns is not between %lu and %lu\n", clock, t, first, last);
				bad = 1;
			}
		}
	}
	begin = kernel_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < CALLS; i++)
		kernel_ns(CLOCK_MONOTONIC);
	call = kernel_ns(CLOCK_MONOTONIC) - begin;
	begin = kernel_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < CALLS; i++)
		vdso_ns(CLOCK_MONOTONIC);
	function_calls = kernel_ns(CLOCK_MONOTONIC) - begin;
	printf("a call of clock_gettime takes %lu ns, a system call %lu ns\n", function_calls / CALLS, call / CALLS);
	return bad || function_calls * 10 > call;
}

int main(int argc, char **argv)
{
	static char page[PAGE];
	struct line l = { 0 };
	uint64_t tsc0 = 0, mono0 = 0; /* where the measurement of the rate began */
	int replaced = 0;

	if (argc == 2 && !strcmp(argv[1], "check"))
		return check();
	if (find_vdso(page))
		return 1;
	for (;; sleep(1)) {
		uint64_t tsc, range, tsc_real, range_real;
		uint64_t mono = sample(CLOCK_MONOTONIC, &tsc, &range), real = sample(CLOCK_REALTIME, &tsc_real, &range_real);
		double rate = (double)(mono - mono0) / (double)(tsc - tsc0); /* nanoseconds per count */
		int64_t behind = l.limit ? (int64_t)(mono - l.ns[1]) - (int64_t)at(&l, tsc) : 0;

		if (range + range_real > RANGE)
			continue; /* another process ran meanwhile */
		if (!mono0 || behind > STEP || behind < -STEP) { /* the first measurement, or the counter jumped */
			mono0 = mono, tsc0 = tsc;
			l.limit = 0;
			if (replaced && publish(&l))
				return 1;
			continue;
		}
		/* The new line begins where the one before is, so that no process sees the time go back, and meets the clock after a second. */
		l.ns[1] = mono - behind;
		l.ns[0] = real - (int64_t)((double)(int64_t)(tsc_real - tsc) * rate) - behind;
		l.tsc = tsc;
		l.limit = LIMIT * (SECOND / rate);
		l.mult = rate * (1 + (double)behind / SECOND) * 4294967296.0;
		if (replaced ? publish(&l) : replace(page, &l))
			return 1;
		replaced = 1;
	}
}
