// Package innode holds the tests that hold the real driver, over its gRPC socket, to real LVM on real device-mapper.
// They run inside a lab node, as root, with its two blank data disks; `make test-lvm` compiles them, carries them in
// and reads their results (test/e2e). The build tag innode keeps them away from other machines.
package innode
