// Package iolimits has scenarios of volumes with I/O limits: a claim's VolumeAttributesClass changes under load, and driver, pod and node
// restart. The limits are in the pod's io.max before the container's first I/O each time.
//
// The driver runs with ioLimits.enabled meanwhile. The last step installs it as shipped again.
package iolimits
