package controller

import (
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// shared makes the pod of a cluster two: web uses a and b, api uses b and c.
func (c *cluster) shared() { c.pods = []string{"web", "api"} }

// TestPodsThatShareAClaimAreRefusedTogether: any two of the claims have room here (40 GiB), and all three have not.
func TestPodsThatShareAClaimAreRefusedTogether(t *testing.T) {
	a, b, c := claim("a", 15*lvm.GiB, "vg-nvme"), claim("b", 14*lvm.GiB, "vg-nvme"), claim("c", 13*lvm.GiB, "vg-nvme")
	s, pod, _ := newPod(t, a, b, c)
	pod.shared()
	for _, claim := range []api.PodClaim{a, b, c} {
		_, err := pod.create(t, s, claim)
		expectKind(t, err, lvm.KindInsufficientCapacity, "pods web and api, which share claims, need claims a and b and c on one node")
	}
	if n := volumesOf(t, s); n != 0 {
		t.Errorf("%d volumes were left behind", n)
	}
	pod.claims = []api.PodClaim{a, b}
	mustCreate(t, s, requestOf(a, "shop"))
	pod.claims = []api.PodClaim{a, b, c}
	_, err := pod.create(t, s, c)
	expectKind(t, err, lvm.KindInsufficientCapacity, "web and api")
	expectWarning(t, pod, "shop/c c-uid InsufficientCapacityForPod: pods web and api, which share claims, cannot all be scheduled", "claim a", "node-1")
}

// TestClaimsOnTwoNodesAreNotBothRefused: two claims that no pod uses together, given to two nodes, are not both sent away.
func TestClaimsOnTwoNodesAreNotBothRefused(t *testing.T) {
	a, d := claim("a", lvm.GiB, "vg-nvme"), claim("d", lvm.GiB, "vg-nvme")
	a.Indirect, a.Node = true, "node-2"
	d.Indirect, d.Node = true, "node-2"
	s, pod, _ := newPod(t, a)
	pod.shared()
	_, err := pod.create(t, s, claim("d", lvm.GiB, "vg-nvme"))
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim a is about to be created on node node-2", "pods web and api, which share claims, need both on one node")
	pod.claims = []api.PodClaim{d}
	if _, err := pod.create(t, s, claim("a", lvm.GiB, "vg-nvme")); err != nil {
		t.Errorf("the first of the two has to go, too: %v", err)
	}
	d.Bound = true
	pod.claims = []api.PodClaim{d}
	_, err = pod.create(t, s, claim("b", lvm.GiB, "vg-nvme"))
	expectKind(t, err, lvm.KindInsufficientCapacity, "claim d is bound to a volume on node node-2")
}
