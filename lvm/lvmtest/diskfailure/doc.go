// Package diskfailure tests a driver whose disks are missing, unresponsive, or duplicate. It changes nothing in such a group, reports why, and
// does not treat an unreadable volume as deleted. Once the disks are back, each request succeeds.
//
// The tests on a fake node fail a disk before and during each request. Those on real LVM (build tag reallvm) remove disks of device-mapper,
// and disks in memory (scsi_debug) that are in use.
package diskfailure
