package main

// Words of package lvm, which is for Linux alone; a test holds them to it, and the kinds of orphans to package kube.
const (
	layoutThin  = "thin"
	defaultPool = "nodelvm-thin"

	stateReady    = "ready"
	stateDeleting = "deleting"

	troublePoolFull   = "ThinPoolFull"
	troublePoolFailed = "ThinPoolFailed"
	troubleUnusable   = "VolumeGroupUnusable"
	troubleSilent     = "DiskUnresponsive"
)
