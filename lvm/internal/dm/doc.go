// Package dm reads the kernel's state of device-mapper devices from sysfs and DM ioctls: which exist, their status, whether
// they are open or suspended. It also zeroes and flushes devices (kernelwrite.go), removes stale names (kernelnames.go,
// devicedir.go) and loads device-mapper (modprobe.go).
//
// Caveat: the kernel reuses device numbers. Every write compares the device-mapper UUID with the open device's.
package dm
