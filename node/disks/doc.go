// Package disks records which disk each physical volume of the node is on: model, serial number, slot. LVM's metadata has none of
// this, and a disk that has died cannot be asked any more. The record is a file in the driver's state directory on the host, because
// a disk that dies takes its own metadata along. Nothing depends on the record: without it, only the description of a lost disk is
// missing.
package disks
