// Package identity tests which volume a request means. The driver identifies groups by UUID and volumes by their tags, whatever their names
// are. It adopts a volume that lost its tags, and changes nothing of another cluster or node. It ignores groups that a tenant writes to a
// volume, and leaves no wrong name in /dev.
//
// The tests on real LVM (build tag reallvm) run an admin's lvm and udev beside the driver.
package identity
