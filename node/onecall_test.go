package node

import (
	"os"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// TestOneStage stages one volume with a file system: a new one, or one that is tagged as ready. TestFilesOfOneCall (cmd/nodelvm) runs it alone, with and without the
// call, and compares the counters: so nothing happens after the call, and the host stays open.
func TestOneStage(t *testing.T) {
	host := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{40 * lvm.GiB}}).Host(lvm.Config{Cluster: "cluster-1", Node: "node-1"})
	must(t, host.Start(t.Context()))
	v, err := host.Create(t.Context(), lvm.Spec{Name: "pvc-1", Class: lvm.Class{Group: "vg"}, Required: lvm.GiB})
	must(t, err)
	f := newFake()
	f.content.Marked = true
	s := New(Config{NodeName: "node-1", Devices: host, Encryption: &f.luks, Tools: f, Mounts: f, MountedFileSystems: f, BlockDevices: f})
	req := stageOf(request(attribute(api.AttributeUUID, v.UUID)))
	req.VolumeId = v.ID.String()
	if os.Getenv("READY") != "" { // as if a pod had used the volume before
		if _, err := host.Activate(t.Context(), v.ID, v.UUID); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("WITHOUT_CALL") != "" {
		return
	}
	if _, err := s.NodeStageVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}
