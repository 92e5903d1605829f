// Package iolimits has scenarios of volumes with I/O limits. In one, a claim has a VolumeAttributesClass; driver, container,
// pod and node restart, and the node loses its power: the limit is in the pod's io.max before the container's first I/O each time. In the
// other, a pod floods the disk of another pod's database.
//
// The driver runs with ioLimits.enabled meanwhile. The last step installs it as shipped again.
package iolimits
