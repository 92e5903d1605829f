// Package hosttest has what the tests of lvm/host share, on a fake node and on real LVM. A Fixture is a node with one volume group to work
// on; a Driver is a Host that counts its LVM commands. OnFake is the fixture on a fake node; package reallvm has the one on real LVM.
//
//	fixture, shape   the group, and the volumes that tests request
//	driver, check    requests that must succeed, and comparisons
//	fake             fake nodes, and drivers on them
//	machine          parts of a fake node that record, or block
package hosttest
