// Package wipe zeroes deleted volumes in the background and then frees their extents, and zeroes extents of new raw block volumes.
package wipe
