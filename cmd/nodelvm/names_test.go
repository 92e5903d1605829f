package main

import (
	"testing"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/node"
)

// controller, node and kube never import each other, and yet agree on these names.
func TestNamesAgree(t *testing.T) {
	for name, pair := range map[string][2]string{
		"topology key":        {controller.TopologyKey, node.TopologyKey},
		"attribute of the LV": {controller.AttributeUUID, node.AttributeUUID},
		"attribute of copies": {controller.AttributeSource, node.AttributeSource},
		"attribute for mkfs":  {controller.AttributeMkfs, node.AttributeMkfs},
		"attribute of groups": {controller.AttributeGroup, kube.AttributeGroup},
		"driver":              {driverName, kubeclient.DriverName},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %q and %q", name, pair[0], pair[1])
		}
	}
}
