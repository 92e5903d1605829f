// Package conformance is the suite that the fake of lvm/lvmtest and real LVM both pass: a Host on either keeps its contract.
//
// Each test gets a Fixture: a node with one volume group without volumes. TestConformance in lvm/lvmtest runs the suite on the fake, and
// TestConformance_RealLVM here, with the build tag reallvm, on real LVM. When a test has ended there, its commands run again on a fake node, and
// each must end with the same exit status. TestRefusals_RealLVM compares what the two refuse.
//
//	conformance, requests   volumes of one leg
//	layouts                 volumes of several legs, and expansion
//	thin, messages          thin pools, snapshots and copies
//	encryption              encrypted volumes
//	group                   unusable and renamed groups, and renamed volumes
package conformance
