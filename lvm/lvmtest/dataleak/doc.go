// Package dataleak tests that no later volume shows the data of a deleted one. The driver zeroes extents before they are free, and destroys
// the keys of encrypted volumes. It zeroes the extents of a new raw block volume unless it knows that they are zero.
//
// The tests on a fake node check which extents the driver zeroes, and when. Those on real LVM (build tag reallvm) read the devices.
package dataleak
