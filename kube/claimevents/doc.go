// Package claimevents writes an event on each claim that waits for a volume of this driver, which says why it waits, and on each
// StorageClass with a parameter that the driver does not know. It runs in nodelvm-controller, so that each claim
// has one writer.
//
//	reporter       the loop: which claims wait, which events to write
//	othervolumes   where the other volumes of a claim's pods are
//	view           the facts that it decides from
//
// Package pending finds the causes, from the capacity that csi-provisioner publishes for each node. kubectl nodelvm why reads the
// drivers' status pages as well, and so finds more.
package claimevents
