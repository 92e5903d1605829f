// Package accepted decides which physical volumes the driver believes. Another driver's volume looks like a disk of the node, and its
// user can write any volume group on it. So a device carries a group only if the node's record names its PV's UUID and the device's
// identity, as LVM's own devices file does (lvmdevices(8)).
//
// The rules (rules.go) are pure functions. The record (record.go) is a file in the driver's state directory (file.go). An identity is
// what sysfs reports about the hardware (identity.go), never what is on the device.
package accepted
