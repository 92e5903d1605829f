// Package operations tests requests to a driver: concurrent, in order, and when an LVM command fails or does not end. It also tests the start
// of a driver after one that was killed.
//
// Most tests run on a fake node; those with slow commands run in the fake time of testing/synctest. The tests on real LVM have the build tag
// reallvm.
package operations
