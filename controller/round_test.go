package controller

import (
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// heldServer serves node-1 over vg-nvme (40 GiB). Each LVM command that has done its work ends when release is called: until
// then its caller holds the lock of the volume group, and the disks can be read.
func heldServer(t *testing.T, pod *cluster) (s *Server, node *lvmtest.Node, hold, release func()) {
	t.Helper()
	node = lvmtest.NewNode(lvmtest.Group{Name: "vg-nvme", Disks: []lvm.Bytes{40 * lvm.GiB}})
	var gate chan struct{}
	config := testConfig
	config.Observe = func(c lvm.Command) {
		if gate != nil && c.Name == "lvcreate" {
			<-gate
		}
	}
	host := node.Start(t, config)
	s = New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, Cluster: pod, CheckFileSystem: checkFileSystem})
	return s, node, func() { gate = make(chan struct{}) }, func() { close(gate) }
}

// begin asks for a claim's volume, and answers when the request waits for something that the test controls.
func begin(t *testing.T, s *Server, req *csi.CreateVolumeRequest) (answer func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.CreateVolume(t.Context(), req)
		done <- err
	}()
	synctest.Wait()
	return func() error { return <-done }
}

// A claim waits for the lock of its volume group, and its peer is refused meanwhile: when its turn comes there is room
// again, and it is refused all the same, for the peer has gone back to the scheduler.
func TestPeerRefusedWhileWaitingForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, other := claim("a", 15*lvm.GiB, "vg-nvme"), claim("b", 15*lvm.GiB, "vg-nvme"), claim("other", lvm.GiB, "vg-nvme")
		pod := &cluster{}
		s, node, hold, release := heldServer(t, pod)
		mustCreate(t, s, requestOf(claim("first", lvm.GiB, "vg-nvme"), "elsewhere")) // from now on the group of the class is known
		hold()
		lvcreate := begin(t, s, requestOf(other, "elsewhere"))
		pod.claims = []api.PodClaim{a, b}
		waits := begin(t, s, requestOf(a, "shop"))

		room := func(there bool) {
			node.Change("vg-nvme", func(g *lvm.Group) { g.PVs[0].Allocatable = there })
		}
		room(false)
		_, err := s.CreateVolume(t.Context(), requestOf(b, "shop"))
		expectKind(t, err, lvm.KindInsufficientCapacity, "pod web")
		room(true)
		release()
		must(t, lvcreate())
		expectKind(t, waits(), lvm.KindInsufficientCapacity, "pod web", "another claim of the same pod")
		if n := volumesOf(t, s); n != 2 {
			t.Errorf("%d volumes are there: the pod is half made", n)
		}
		for _, c := range []api.PodClaim{a, b} { // the scheduler sends both once more
			if _, err := pod.create(t, s, c); err != nil {
				t.Errorf("claim %s: %v", c.Name, err)
			}
		}
	})
}
