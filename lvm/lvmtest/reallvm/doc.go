// Package reallvm has what the tests on real LVM share (build tag reallvm): a volume group on loop devices over files in memory, drivers on
// it, and the programs of a node. NewFixture returns the group without volumes; Main, which a package with that group calls from TestMain,
// removes it after the last test.
//
// The tests run as root in a node of the lab, never on a developer's machine: they create and remove volume groups, and change udev's rules.
package reallvm
