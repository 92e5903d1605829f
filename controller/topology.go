package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// topologyOf returns the topology of every volume of a node.
func topologyOf(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{api.TopologyKey: node}}
}

// reaches reports whether a volume of the node is accessible from the topology. It is not from one with a segment that this
// driver does not know.
func reaches(topology *csi.Topology, node string) bool {
	segments := topology.GetSegments()
	return len(segments) == 1 && segments[api.TopologyKey] == node
}

// checkTopology refuses (lvm.KindInsufficientCapacity) a volume that the request allows only on other nodes: the requisite and
// the preferred topologies, if set, must each contain this node. Without a requirement any node will do (CSI spec,
// "TopologyRequirement").
func checkTopology(requirement *csi.TopologyRequirement, node string) error {
	for _, list := range [][]*csi.Topology{requirement.GetRequisite(), requirement.GetPreferred()} {
		here := func(t *csi.Topology) bool { return reaches(t, node) }
		if len(list) > 0 && !slices.ContainsFunc(list, here) {
			return lvm.Errorf(lvm.KindInsufficientCapacity, "node %s: the volume is requested for %s, but this node provides only %s=%s; use volumeBindingMode: WaitForFirstConsumer in the StorageClass, and no allowedTopologies that exclude this node",
				node, describe(list), api.TopologyKey, node)
		}
	}
	return nil
}

// checkSnapshotTopology refuses (lvm.KindInsufficientCapacity) a snapshot that the request allows only on other nodes.
func checkSnapshotTopology(requirement *csi.TopologyRequirement, node string) error {
	list := requirement.GetRequisite()
	if len(list) == 0 || slices.ContainsFunc(list, func(t *csi.Topology) bool { return reaches(t, node) }) {
		return nil
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "node %s: the snapshot is requested for %s, but a snapshot is on the node of its volume, %s=%s", node, describe(list), api.TopologyKey, node)
}

// placesMost is the number of topologies that a message lists.
const placesMost = 5

// describe lists topologies in the format of labels, with a stable order.
func describe(list []*csi.Topology) string {
	var places []string
	for i, topology := range list {
		if i == placesMost {
			places = append(places, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		if len(topology.GetSegments()) == 0 {
			places = append(places, "a topology without segments")
			continue
		}
		var segments []string
		for key, value := range topology.GetSegments() {
			segments = append(segments, fmt.Sprintf("%s=%s", key, value))
		}
		slices.Sort(segments)
		places = append(places, strings.Join(segments, ","))
	}
	return strings.Join(places, " or ")
}
