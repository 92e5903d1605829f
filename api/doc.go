// Package api holds the names that the driver and Kubernetes' objects have in common: those that the driver writes into objects and
// reads from them, and those that admins write. The driver's packages, kubectl's plugin and the tests of chart and docs take them
// from here. Package api imports nothing.
//
// The other facts that several packages share are in lvm (names, handles, layouts and states of volumes, conditions) and in
// report (the document that a node's driver publishes).
package api
