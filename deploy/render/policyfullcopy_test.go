package main

import (
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	copyKey   = "nodelvm.io/copy-key"
	copyOffer = "nodelvm.io/copy-offer"
)

// copyRequests are those of a full copy from or to node-1.
func copyRequests() []request {
	restoring := func(node string) runtime.Object { return copying("VolumeSnapshot", claim(node)) }
	keyed := func(node string) runtime.Object {
		return annotated(copyKey, "sha256:0", copying("VolumeSnapshot", claim(node)))
	}
	offered := func(node, text string) runtime.Object {
		c := content(node)
		c.SetAnnotations(map[string]string{copyOffer: text})
		return c
	}
	cloned := func(node string, annotations ...string) runtime.Object {
		pv := volume(node)
		for i := 0; i < len(annotations); i += 2 {
			pv.Annotations[annotations[i]] = annotations[i+1]
		}
		return pv
	}
	const of = copyOffer + "-" + claimUID
	restrained := func(pv runtime.Object) runtime.Object {
		pv.(*core.PersistentVolume).Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
		return pv
	}
	return []request{
		{name: "say how a clone of its volume is copied", before: cloned("node-1"), now: cloned("node-1", of, "{}")},
		{name: "say it again of a clone", before: cloned("node-1", of, "old"), now: cloned("node-1", of, "{}")},
		{name: "say it no longer", before: cloned("node-1", of, "{}"), now: cloned("node-1")},
		{name: "say which process clones for its claim", before: copying("PersistentVolumeClaim", claim("node-1")), now: annotated(copyKey, "sha256:0", copying("PersistentVolumeClaim", claim("node-1")))},

		{name: "say how a clone of another node's volume is copied", before: cloned("node-2"), now: cloned("node-2", of, "{}"), refused: mayOnly},
		{name: "remove what another node says", before: cloned("node-2", of, "{}"), now: cloned("node-2"), refused: mayOnly},
		{name: "say it at length of a clone", before: cloned("node-1"), now: cloned("node-1", of, strings.Repeat("a", 4097)), refused: mayOnly},
		{name: "say it of no clone", before: cloned("node-1"), now: cloned("node-1", copyOffer, "{}"), refused: mayOnly},
		{name: "say it of what is no UID", before: cloned("node-1"), now: cloned("node-1", copyOffer+"-x", "{}"), refused: mayOnly},
		{name: "say it with another annotation", before: cloned("node-1"), now: cloned("node-1", of, "{}", "a", "b"), refused: mayOnly},
		{name: "say it, and retain the volume", before: cloned("node-1"), now: restrained(cloned("node-1", of, "{}")), refused: mayOnly},
		{name: "create a volume that says it", now: cloned("node-1", of, "{}"), refused: mayOnly},

		{name: "say which process copies for its claim", before: restoring("node-1"), now: keyed("node-1")},
		{name: "say that another process does", before: annotated(copyKey, "old", copying("VolumeSnapshot", claim("node-1"))), now: keyed("node-1")},
		{name: "say how its snapshot is copied", before: content("node-1"), now: offered("node-1", "{}")},
		{name: "say it again", before: offered("node-1", "old"), now: offered("node-1", "{}")},

		{name: "say which process copies for another node's claim", before: restoring("node-2"), now: keyed("node-2"), refused: mayOnly},
		{name: "say it for a claim of no node", before: restoring(""), now: keyed(""), refused: mayOnly},
		{name: "say it, and take the claim", before: restoring(""), now: keyed("node-1"), refused: mayOnly},
		{name: "say it, and give the claim back", before: restoring("node-1"), now: keyed(""), refused: mayOnly},
		{name: "say it for a claim without a source", before: claim("node-1"), now: annotated(copyKey, "sha256:0", claim("node-1")), refused: mayOnly},
		{name: "say it for a bound claim", before: copying("VolumeSnapshot", bound("node-1")), now: annotated(copyKey, "sha256:0", copying("VolumeSnapshot", bound("node-1"))), refused: mayOnly},
		{name: "say it at length", before: restoring("node-1"), now: annotated(copyKey, strings.Repeat("a", 129), copying("VolumeSnapshot", claim("node-1"))), refused: mayOnly},
		{name: "say how another node's snapshot is copied", before: content("node-2"), now: offered("node-2", "{}"), refused: mayOnly},
		{name: "say how a snapshot of no node is copied", before: content(""), now: offered("", "{}"), refused: mayOnly},
		{name: "say how a snapshot is copied, and take it", before: content(""), now: offered("node-1", "{}"), refused: mayOnly},
		{name: "say at length how its snapshot is copied", before: content("node-1"), now: offered("node-1", strings.Repeat("a", 4097)), refused: mayOnly},
		{name: "say it by way of the status", sub: "status", before: content("node-1"), now: offered("node-1", "{}"), refused: mayOnly},
	}
}
