package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// waitAtMost bounds how long a pod with one claim waits for a node that has room for it.
const waitAtMost = 15 * time.Second

// podWithoutNode is a pod as the scheduler sees it.
type podWithoutNode struct {
	name    string
	claims  []api.PodClaim // Bound: its volume is made
	handles []string
	tries   int
	next    time.Time // of its next try
	asleep  bool      // until more capacity is published
	came    time.Time
	waited  time.Duration // until all of its volumes were made; 0: they are not
}

// oneNode is a cluster of one node: a scheduler that compares each claim alone with the capacity that it knows, and backs
// off from one second to ten; and a csi-provisioner that publishes the capacity each second.
type oneNode struct {
	t         *testing.T
	s         *Server
	pods      []*podWithoutNode
	published lvm.Bytes
	ticks     int
}

func newOneNode(t *testing.T, size lvm.Bytes) *oneNode {
	t.Helper()
	n := &oneNode{t: t}
	host := lvmtest.NewNode(lvmtest.Group{Name: "vg-nvme", Disks: []lvm.Bytes{size}}).Start(t, testConfig)
	n.s = New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, Cluster: n, CheckFileSystem: checkFileSystem})
	return n
}

func (n *oneNode) Asked(string, string) func()                                  { return func() {} }
func (n *oneNode) Warn(context.Context, string, string, string, string, string) {}

// PodClaims: the namespace is the pod's name.
func (n *oneNode) PodClaims(_ context.Context, namespace, name string) (api.PodClaims, error) {
	claims := api.PodClaims{Pods: []string{namespace}, PodUID: namespace}
	for _, pod := range n.pods {
		for _, c := range pod.claims {
			if pod.name == namespace && c.Name != name {
				claims.Claims = append(claims.Claims, c)
			}
		}
	}
	return claims, nil
}

func (n *oneNode) Waiting(namespace, name, _ string) bool {
	return slices.ContainsFunc(n.pods, func(pod *podWithoutNode) bool {
		return pod.name == namespace && slices.ContainsFunc(pod.claims, func(c api.PodClaim) bool { return c.Name == name && !c.Bound })
	})
}

func (n *oneNode) WaitingHere(string, string, string) bool { return false }

func (n *oneNode) MayCreate(string, string, string) error                           { return nil }
func (n *oneNode) MayRestore(context.Context, string, string, string, lvm.ID) error { return nil }

func (n *oneNode) SourceNode(context.Context, string, api.PodClaim) (string, error) {
	return "", nil
}

func (n *oneNode) NameThinClass(err error) error { return err }

func (n *oneNode) MayDelete(context.Context, lvm.ID) error { return nil }

// add makes a pod with claims of these sizes. What it leaves is free at once when it is deleted.
func (n *oneNode) add(name string, sizes ...lvm.Bytes) *podWithoutNode {
	pod := &podWithoutNode{name: name, came: time.Now()}
	for i, size := range sizes {
		c := claim(fmt.Sprintf("%s-%d", name, i), size, "vg-nvme")
		c.Parameters["wipe"] = "none"
		pod.claims = append(pod.claims, c)
	}
	n.pods = append(n.pods, pod)
	return pod
}

func (n *oneNode) remove(pod *podWithoutNode) {
	n.t.Helper()
	for _, handle := range pod.handles {
		if _, err := n.s.DeleteVolume(n.t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.pods = slices.DeleteFunc(n.pods, func(other *podWithoutNode) bool { return other == pod })
}

// run lets the cluster work for a while.
func (n *oneNode) run(d time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n.ticks%10 == 0 {
			n.publish()
		}
		n.ticks++
		for _, pod := range slices.Clone(n.pods) {
			if pod.waited == 0 && !pod.asleep && !time.Now().Before(pod.next) {
				n.schedule(pod)
			}
		}
	}
}

func (n *oneNode) publish() {
	n.t.Helper()
	reply, err := n.s.GetCapacity(n.t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": "vg-nvme", "wipe": "none"}})
	if err != nil {
		n.t.Fatal(err)
	}
	most := lvm.Bytes(reply.GetMaximumVolumeSize().GetValue())
	for _, pod := range n.pods {
		pod.asleep = pod.asleep && most <= n.published
	}
	n.published = most
}

// schedule tries once to place a pod: refused, it is tried again by itself, since its claims have changed.
func (n *oneNode) schedule(pod *podWithoutNode) {
	n.t.Helper()
	pod.next = time.Now().Add(min(time.Second<<min(pod.tries, 5), 10*time.Second))
	pod.tries++
	left := 0
	for _, c := range pod.claims {
		pod.asleep = pod.asleep || !c.Bound && sizeOf(c) > n.published
	}
	for i := range pod.claims {
		c := &pod.claims[i]
		if pod.asleep || c.Bound {
			continue
		}
		reply, err := n.s.CreateVolume(n.t.Context(), requestOf(*c, pod.name))
		if err != nil {
			left++
			expectKind(n.t, err, lvm.KindInsufficientCapacity)
			continue
		}
		c.Bound, c.Node = true, "node-1"
		pod.handles = append(pod.handles, reply.GetVolume().GetVolumeId())
	}
	if left == 0 && !pod.asleep {
		pod.waited = max(1, time.Since(pod.came))
	}
}

// Pods that there is no room for do not keep those away for long that there is room for, and get their room when it is there.
func TestWaitingPodsDoNotStarveOthers(t *testing.T) {
	for pairs := 1; pairs <= 4; pairs++ {
		t.Run(fmt.Sprintf("%d pods with two claims wait", pairs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newOneNode(t, 40*lvm.GiB)
				filler := n.add("filler", 33*lvm.GiB)
				n.run(2 * time.Second)
				var waiting []*podWithoutNode
				for i := range pairs { // 6.9 GiB are free: room for either claim, and not for both
					waiting = append(waiting, n.add(fmt.Sprintf("pair-%d", i), 4*lvm.GiB, 4*lvm.GiB-lvm.Bytes(i)*lvm.MiB))
					n.run(3700 * time.Millisecond)
				}
				for i := range 20 {
					n.run(time.Duration(11+7*i%13) * 1300 * time.Millisecond)
					single := n.add(fmt.Sprintf("single-%d", i), 5*lvm.GiB)
					n.run(2 * waitAtMost)
					if single.waited == 0 || single.waited > waitAtMost {
						t.Fatalf("pod %s waited for %s (0: still) with room for it, want at most %s", single.name, single.waited, waitAtMost)
					}
					n.remove(single)
				}
				n.remove(filler)
				n.run(20 * time.Second)
				for _, pod := range waiting {
					if pod.waited == 0 {
						t.Errorf("pod %s still waits, with room for all", pod.name)
					}
				}
			})
		})
	}
}

// A claim that never comes does not keep its room for long.
func TestReservationOfUnrequestedClaimExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOneNode(t, 40*lvm.GiB)
		pair := n.add("pair", 15*lvm.GiB, 15*lvm.GiB)
		if _, err := n.s.CreateVolume(t.Context(), requestOf(pair.claims[0], "pair")); err != nil {
			t.Fatal(err)
		}
		pair.waited = 1 // the scheduler has lost sight of it
		single := n.add("single", 20*lvm.GiB)
		n.run(2 * waitAtMost)
		if single.waited == 0 || single.waited > waitAtMost {
			t.Errorf("the pod waited for %s (0: still), want at most %s", single.waited, waitAtMost)
		}
	})
}
