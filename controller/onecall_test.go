package controller

import (
	"os"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// TestOneCreateVolume creates one volume, on a node of Kubernetes. TestFilesOfOneCall (cmd/nodelvm) runs it alone, with
// and without the call, and compares the counters: so nothing happens after the call, and the host stays open.
func TestOneCreateVolume(t *testing.T) {
	host := lvmtest.NewNode(lvmtest.Group{Name: "vg-nvme", Disks: []lvm.Bytes{40 * lvm.GiB}}).Host(lvm.Config{Cluster: "cluster-1", Node: "node-1"})
	must(t, host.Start(t.Context()))
	s := New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, Cluster: &cluster{claims: []api.PodClaim{}},
		CheckFileSystem: checkFileSystem, CheckMountOptions: checkMountOptions, MinimumSize: minimumSize})
	req := wanted()
	if os.Getenv("WITHOUT_CALL") != "" {
		return
	}
	mustCreate(t, s, req)
}
