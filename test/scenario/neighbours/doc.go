// Package neighbours has the scenario of a second CSI driver in the cluster, test/cmd/diskdriver, whose raw block volumes are whole disks of a node. A tenant
// writes on its disk what a node could take for its own. Claims have sources that nodelvm does not serve, and a volume populator fills one.
package neighbours
