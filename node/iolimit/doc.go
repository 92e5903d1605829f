// Package iolimit limits the I/O of pods on their volumes. It writes the limits of a volume to io.max of the cgroup of each pod that uses
// it, for the number of the device that the pod uses (Linux, Documentation/admin-guide/cgroup-v2.rst, "IO"). The containers of a pod
// share its limits. statistics.go reads what the kernel counts of each device.
//
// The flow of a limit: Limiter.Set -> cgroups.dirOf (where is the pod's cgroup?) -> read io.max -> enable the io controller on the way
// if it is missing -> write one line.
//
// The package makes no cgroup and no file. It writes only to cgroups of pods, and there only the lines of devices that its caller names.
//
// Caveats. The kernel counts against a limit only what a pod itself writes. The journal of a file system, pages that another pod made
// dirty, and the I/O of loop devices are not limited. The suspension of a limited device waits for the pod's dirty data: see Limiter.Lift. A
// limit is lost with the pod's cgroup, with the device, and when another program disables the io controller.
package iolimit
