// Package image builds container images without a container engine.
//
// An image is made of two layers at most: a Debian root file system, and the
// files that the project adds to it.
//
//	Debian   mirror -> mmdebstrap -> base.tar.gz     (a minute, worth a cache)
//	Write    base.tar.gz + files -> image.tar        (a second)
//
// The archive has the docker-archive form, which docker load, podman load,
// ctr images import, skopeo and crane push all read.
//
// Caveats: Debian needs mmdebstrap, and root or unprivileged user namespaces;
// what it writes follows the suite's current packages, so only Write promises
// the same bytes for the same input.
package image
