// Package dm asks the kernel about device-mapper devices through sysfs and DM ioctls: which exist, their status, whether
// they are open or suspended. It also zeroes and flushes devices (kernelwrite.go) and removes stale names
// (kernelnames.go, devicedir.go).
//
// Caveat: a device number can be reused. Every write compares the device-mapper UUID with the device that is open.
package dm
