package main

import (
	"testing"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	core "k8s.io/api/core/v1"
)

const (
	ofController   = "system:serviceaccount:nodelvm-system:nodelvm-controller"
	originalPolicy = "nodelvm.io/original-reclaim-policy"
	abandoned      = "nodelvm.io/abandoned-since"
)

// TestControllerRestriction runs nodelvm-controller's policy over each step of its packages, and over what a stolen token would try.
func TestControllerRestriction(t *testing.T) {
	const volumes, claims, contents = "deletes only released volumes of nodelvm.io", "deletes only bound claims of nodelvm.io", "changes only contents of nodelvm.io"
	provisioner, mine := "external-provisioner.volume.kubernetes.io/finalizer", func(r request) request { r.user = ofController; return r }
	releasing := saying(originalPolicy, "Delete", retained("node-1"))
	bare := func(pv *core.PersistentVolume) *core.PersistentVolume { pv.Finalizers = nil; return pv }
	only := func(finalizer string, pv *core.PersistentVolume) *core.PersistentVolume {
		pv.Finalizers = []string{finalizer}
		return pv
	}
	other := func(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
		return annotated("volume.kubernetes.io/storage-provisioner", "other.io", pvc)
	}
	var requests []request
	for _, r := range []request{
		{name: "note a loss", before: volume("node-1"), now: losing(lostSince, volume("node-1"))},
		{name: "end a loss", before: losing(lostSince, volume("node-1")), now: volume("node-1")},
		{name: "retain a volume before its claim goes", before: losing(lostSince, volume("node-1")), now: losing(lostSince, releasing)},
		{name: "note that a retained volume was one", before: losing(lostSince, retained("node-1")), now: losing(lostSince, saying(originalPolicy, "Retain", retained("node-1")))},
		{name: "abandon it", before: losing(lostSince, saying(originalPolicy, "Retain", retained("node-1"))), now: losing(abandoned, losing(lostSince, retained("node-1")))},
		{name: "restore the policy", before: losing(lostSince, releasing), now: volume("node-1")},
		{name: "keep a volume that is back", before: losing(lostSince, releasing), now: losing(abandoned, retained("node-1"))},
		{name: "note that a retained volume is released", before: losing(lostSince, retained("node-1")), now: losing(abandoned, losing(lostSince, retained("node-1")))},
		{name: "delete a released volume", before: released(volume("node-1"))},
		{name: "remove the finalizer of a lost node", before: only(provisioner, dying(volume("node-1"))), now: bare(dying(volume("node-1")))},
		{name: "delete a claim", before: provisioned(bound("node-1"))},
		{name: "delete a claim that an admin has bound", before: bound("node-1")},
		{name: "return a claim to the scheduler", before: provisioned(claim("node-1")), now: unselected(provisioned(claim("node-1")))},
		{name: "note the loss of a snapshot", before: content("node-1"), now: lostContent(content("node-1"))},
		{name: "the admin deletes what they want", user: "admin", before: of("other.io", volume("node-1"))},

		{name: "delete another driver's volume", before: released(of("other.io", volume("node-1"))), refused: volumes},
		{name: "delete a volume in use", before: volume("node-1"), refused: volumes},
		{name: "note a loss of another driver's volume", before: of("other.io", volume("node-1")), now: losing(lostSince, of("other.io", volume("node-1"))), refused: volumes},
		{name: "have a retained volume deleted", before: retained("node-1"), now: volume("node-1"), refused: volumes},
		{name: "say that it was to be deleted", before: retained("node-1"), now: saying(originalPolicy, "Delete", retained("node-1")), refused: volumes},
		{name: "say that it was retained", before: volume("node-1"), now: saying(originalPolicy, "Retain", volume("node-1")), refused: volumes},
		{name: "say that one to be deleted was retained", before: releasing, now: saying(originalPolicy, "Retain", retained("node-1")), refused: volumes},
		{name: "give a volume to another claim", before: released(volume("node-1")), now: ofClaim("bank", "app", volume("node-1")), refused: volumes},
		{name: "put a volume on another node", before: volume("node-1"), now: volume("node-2"), refused: volumes},
		{name: "label a volume", before: volume("node-1"), now: labelled(volume("node-1")), refused: volumes},
		{name: "move a volume", before: volume("node-1"), now: saying("nodelvm.io/moving-to", "node-2", volume("node-1")), refused: volumes},
		{name: "remove a finalizer early", before: only(provisioner, volume("node-1")), now: bare(volume("node-1")), refused: volumes},
		{name: "remove Kubernetes' finalizer", before: dying(volume("node-1")), now: bare(dying(volume("node-1"))), refused: volumes},
		{name: "delete another driver's claim", before: other(bound("node-1")), refused: claims},
		{name: "delete a claim that waits", before: provisioned(claim("node-1")), refused: claims},
		{name: "return another driver's claim", before: other(claim("node-1")), now: unselected(other(claim("node-1"))), refused: claims},
		{name: "select a node", before: unselected(provisioned(claim("node-1"))), now: provisioned(claim("node-1")), refused: claims},
		{name: "have a volume moved", before: provisioned(bound("node-1")), now: annotated("nodelvm.io/move-to", "node-2", provisioned(bound("node-1"))), refused: claims},
		{name: "note a loss of another driver's snapshot", before: foreign(content("node-1")), now: lostContent(foreign(content("node-1"))), refused: contents},
		{name: "have a snapshot deleted", before: content("node-1"), now: deleting(content("node-1")), refused: contents},
		{name: "give a snapshot to another node", before: content("node-1"), now: content("node-2"), refused: contents},
	} {
		if r.user == "" {
			r = mine(r)
		}
		requests = append(requests, r)
	}
	expectAnswers(t, policyIn(t, splitController(t), "nodelvm-controller-restriction"), requests)
}

func lostContent(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Annotations = map[string]string{lostSince: "2026-01-01T00:00:00Z"}
	return c
}
