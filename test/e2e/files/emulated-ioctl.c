/*
 * Loaded into the programs of the image for arm64 by /etc/ld.so.preload, where qemu runs them in user mode.
 *
 * ioctl: makes up for what qemu up to 11.1 at least gets wrong or does not know (linux-user/syscall.c, ioctls.h). LVM and the mkfs
 * programs then do what they do on a real processor. The driver does not load this: it is linked statically.
 */
#include <errno.h>
#include <linux/blkzoned.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * qemu drops the UUIDs from device-mapper's list of devices. libdevmapper takes the bytes of other entries for them, and LVM takes active
 * volumes for inactive ones. From a kernel before 4.38, LVM does not expect them.
 */
enum { MINOR_WITHOUT_UUIDS = 37 };

/*
 * qemu writes the targets of a table one behind the other. Linux 6.5 and later refuses a target that is not aligned: spaces at the end of
 * the parameters, which mean nothing, align the next one.
 */
static int load_table(int fd, struct dm_ioctl *table)
{
	enum { ALIGNMENT = 8 };
	size_t size = table->data_size + table->target_count * ALIGNMENT;
	struct dm_ioctl *aligned = calloc(1, size);
	char *from = (char *)table + table->data_start, *to = (char *)aligned + table->data_start;
	int result, error;

	if (!aligned) {
		errno = ENOMEM;
		return -1;
	}
	memcpy(aligned, table, table->data_start);
	aligned->data_size = size;
	for (unsigned i = 0; i < table->target_count; i++) {
		struct dm_target_spec *target = memcpy(to, from, sizeof *target);
		char *parameters = strcpy(to + sizeof *target, from + sizeof *target);
		size_t length = strlen(parameters);

		from += target->next;
		while ((sizeof *target + length + 1) % ALIGNMENT)
			parameters[length++] = ' ';
		target->next = sizeof *target + length + 1;
		to += target->next;
	}
	result = syscall(SYS_ioctl, fd, DM_TABLE_LOAD, aligned);
	error = errno;
	if (result == 0) {
		aligned->data_size = table->data_size;
		memcpy(table, aligned, offsetof(struct dm_ioctl, data));
	}
	free(aligned);
	errno = error;
	return result;
}

/* qemu crashes if it is asked what a device without a table depends on: on nothing. */
static int table_dependencies(int fd, struct dm_ioctl *device)
{
	struct dm_ioctl status = *device;
	unsigned table = device->flags & DM_QUERY_INACTIVE_TABLE_FLAG ? DM_INACTIVE_PRESENT_FLAG : DM_ACTIVE_PRESENT_FLAG;

	status.data_size = status.data_start = sizeof status;
	if (syscall(SYS_ioctl, fd, DM_DEV_STATUS, &status) == -1)
		return -1;
	if (status.flags & table)
		return syscall(SYS_ioctl, fd, DM_TABLE_DEPS, device);
	status.data_size = device->data_size;
	status.data_start = device->data_start;
	memcpy(device, &status, offsetof(struct dm_ioctl, data));
	((struct dm_target_deps *)((char *)device + device->data_start))->count = 0;
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;
	int result;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	switch (request) {
	case DM_TABLE_LOAD:
		return load_table(fd, argument);
	case DM_TABLE_DEPS:
		return table_dependencies(fd, argument);
	case BLKBSZSET: /* the block size of the device's page cache, which mkfs.xfs sets: any will do */
		return 0;
	case BLKGETZONESZ: /* no disk of a lab node has zones */
		*(unsigned *)argument = 0;
		return 0;
	}
	result = syscall(SYS_ioctl, fd, request, argument);
	if (result == 0 && request == DM_VERSION)
		((struct dm_ioctl *)argument)->version[1] = MINOR_WITHOUT_UUIDS;
	return result;
}
