// Package dm asks the kernel about block devices: device-mapper by its ioctls (control.go), sysfs (sysfs.go), and the table of mounts
// (mounts.go). Kernel makes of that what the engine needs (lvm.Kernel): which devices exist, their status, whether they are in use. It
// also zeroes and flushes devices (kernelwrite.go), removes names (kernelnames.go, devicedir.go) and loads device-mapper (modprobe.go).
//
// The engine, package node and package luks share this package. It decides nothing about volumes.
//
// Caveat: the kernel reuses device numbers. Every write compares the device-mapper UUID with the open device's.
package dm
