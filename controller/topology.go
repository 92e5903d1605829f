package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// topologyOf is the place of every volume of a node.
func topologyOf(node string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{api.TopologyKey: node}}
}

// reaches tells whether a volume of the node is accessible from the topology. A segment that this driver does not
// know cannot be promised.
func reaches(topology *csi.Topology, node string) bool {
	segments := topology.GetSegments()
	return len(segments) == 1 && segments[api.TopologyKey] == node
}

// checkTopology refuses (lvm.KindInsufficientCapacity) a volume that is wanted on other nodes only: the requisite and the preferred
// topologies, where given, must each name this node. No requirement at all asks for a volume anywhere, and here is
// as good as elsewhere (CSI spec, "TopologyRequirement").
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

// placesMost is how many topologies are named.
const placesMost = 5

// describe names topologies as labels are written, in a stable order.
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
