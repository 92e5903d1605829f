package main

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// nodeNamed is a node with this label topology.nodelvm.io/node; "": without it.
func nodeNamed(name, label string) *core.Node {
	node := &core.Node{}
	node.Name = name
	if label != "" {
		node.Labels = map[string]string{topologyKey: label, "kubernetes.io/hostname": name}
	}
	return node
}

// TestTopologyLabel: a node's label names that node, whoever writes it, so that no other node gets its pods.
func TestTopologyLabel(t *testing.T) {
	heartbeat := nodeNamed("node-1", "node-2")
	heartbeat.Status.Phase = core.NodeRunning
	const other = "label topology.nodelvm.io/node of node node-1 can only be node-1, not node-2"
	requests := []request{
		{name: "register", now: nodeNamed("node-1", "")},
		{name: "register with the label", now: nodeNamed("node-1", "node-1")},
		{name: "set the label", before: nodeNamed("node-1", ""), now: nodeNamed("node-1", "node-1")},
		{name: "set the label with the status", sub: "status", before: nodeNamed("node-1", ""), now: nodeNamed("node-1", "node-1")},
		{name: "remove the label", before: nodeNamed("node-1", "node-1"), now: nodeNamed("node-1", "")},
		{name: "correct the label", before: nodeNamed("node-1", "node-2"), now: nodeNamed("node-1", "node-1")},
		{name: "a status with a wrong label of before", sub: "status", before: nodeNamed("node-1", "node-2"), now: heartbeat},

		{name: "register as another", now: nodeNamed("node-1", "node-2"), refused: other},
		{name: "become another", before: nodeNamed("node-1", "node-1"), now: nodeNamed("node-1", "node-2"), refused: other},
		{name: "become another without a label of before", before: nodeNamed("node-1", ""), now: nodeNamed("node-1", "node-2"), refused: other},
		{name: "become another by way of the status", sub: "status", before: nodeNamed("node-1", "node-1"), now: nodeNamed("node-1", "node-2"), refused: other},
	}
	for _, who := range []string{"system:node:node-1", "system:admin"} {
		for i := range requests {
			requests[i].user = who
		}
		t.Run(who, func(t *testing.T) { expectAnswers(t, shippedPolicy(t, "nodelvm-topology-label"), requests) })
	}
}
