// Package install has scenarios of other installations of the driver: by Helm from blank disks (helm.go), with the preset for instance stores
// (instancestore.go), and on nodes that lack what most have (unusualnodes.go).
//
// Each replaces or changes the driver that scenario.Raise has installed, and restores it in the end, with the nodes' volume groups. They want
// volume groups without volumes.
package install
