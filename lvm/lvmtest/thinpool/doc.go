// Package thinpool tests the thin pools that a driver creates, extends as they fill, and removes when they are empty. It also tests the
// messages that LVM sends to a pool: after a lost message, only LVM or only the pool has the volume.
//
// The tests on real LVM have the build tag reallvm.
package thinpool
