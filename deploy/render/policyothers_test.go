package main

import (
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherRequests are what is written of CSIStorageCapacities and events, and what tokens of others write.
func otherRequests() []request {
	return []request{
		{name: "publish its capacity", now: capacity("node-1")},
		{name: "update its capacity", before: capacity("node-1"), now: capacity("node-1")},
		{name: "take over what the pod before published", before: ofEarlierPod(), now: ofEarlierPod(capacity("node-1").OwnerReferences...)},
		{name: "withdraw its capacity", before: capacity("node-1")},
		{name: "write an event", now: event("nodelvm.io")},
		{name: "renew an event", before: event("nodelvm.io"), now: event("nodelvm.io")},
		{name: "write csi-provisioner's event", now: event("nodelvm.io_nodelvm-x_0001")},
		{name: "write csi-provisioner's other event", now: event("external-provisioner")},
		{name: "write csi-snapshotter's event", now: event("csi-snapshotter nodelvm.io")},

		{name: "publish another node's capacity", now: capacity("node-2"), refused: mayOnly},
		{name: "withdraw another node's capacity", before: capacity("node-2"), refused: mayOnly},
		{name: "turn its capacity into another's", before: capacity("node-1"), now: capacity("node-2"), refused: mayOnly},
		{name: "publish capacity everywhere", now: everywhere(), refused: mayOnly},
		{name: "use a token of no node", node: "-", now: volume("node-1"), refused: "bound to no node"},
		{name: "use a token of no node for a claim of none", node: "-", before: claim(""), now: claim(""), refused: "bound to no node"},
		{name: "somebody else", user: "system:admin", node: "-", before: volume("node-2")},
		{name: "a like-named account", user: account + "2", node: "-", before: volume("node-2")},
		{name: "publish under another driver's name", now: published(func(c *storage.CSIStorageCapacity) {
			c.Labels["csi.storage.k8s.io/drivername"] = "other.io"
		}), refused: mayOnly},
		{name: "publish for another node's provisioner", now: published(func(c *storage.CSIStorageCapacity) {
			c.Labels["csi.storage.k8s.io/managed-by"] = "external-provisioner-node-2"
		}), refused: mayOnly},
		{name: "publish with another label", now: published(func(c *storage.CSIStorageCapacity) { c.Labels["a"] = "b" }), refused: mayOnly},
		{name: "publish with an annotation", now: published(func(c *storage.CSIStorageCapacity) { c.Annotations = map[string]string{"a": "b"} }), refused: mayOnly},
		{name: "publish with a finalizer", now: published(func(c *storage.CSIStorageCapacity) { c.Finalizers = []string{"a/b"} }), refused: mayOnly},
		{name: "publish only the largest volume", now: withoutCapacity(), refused: mayOnly},
		{name: "withdraw the capacity alone", before: capacity("node-1"), now: withoutCapacity(), refused: mayOnly},
		{name: "publish for another owner", now: ofEarlierPod(), refused: mayOnly},
		{name: "give its capacity another owner", before: capacity("node-1"), now: ofEarlierPod(), refused: mayOnly},
		{name: "publish for more nodes", now: published(func(c *storage.CSIStorageCapacity) {
			c.NodeTopology.MatchExpressions = []meta.LabelSelectorRequirement{{Key: "a", Operator: meta.LabelSelectorOpExists}}
		}), refused: mayOnly},
		{name: "write an event in another's name", now: event("kubelet"), refused: mayOnly},
		{name: "change another's event", before: event("kubelet"), now: event("nodelvm.io"), refused: mayOnly},
		{name: "put its event into another's name", before: event("nodelvm.io"), now: event("kubelet"), refused: mayOnly},
		{name: "remove an event", before: event("nodelvm.io"), refused: mayOnly},
		{name: "use a token of no node for an event", node: "-", now: event("nodelvm.io"), refused: "bound to no node"},
	}
}

// withoutCapacity has only the largest volume, which the API server accepts.
func withoutCapacity() *storage.CSIStorageCapacity {
	return published(func(c *storage.CSIStorageCapacity) { c.Capacity, c.MaximumVolumeSize = nil, c.Capacity })
}
