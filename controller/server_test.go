package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// elsewhere is a well-formed handle of a group that no test has.
const (
	elsewhere         = "AAAAAA-bbbb-cccc-dddd-eeee-ffff-GGGGGG/pvc-1"
	elsewhereSnapshot = "AAAAAA-bbbb-cccc-dddd-eeee-ffff-GGGGGG/s-0123456789abcdef0123456789abcdef"
)

// testConfig is that of a driver whose commands can be counted: it marks no new volume as ready by itself, a moment after its reply.
var testConfig = lvm.Config{Cluster: "cluster-1", ReadyDelay: time.Hour}

// newTestServer serves node-1 over a fake node with two groups: vg-nvme (40 GiB) and vg-sata (100 GiB on two disks),
// both tagged any.
func newTestServer(t *testing.T) (*Server, *lvmtest.Node) {
	t.Helper()
	node := lvmtest.NewNode(
		lvmtest.Group{Name: "vg-nvme", Tags: []string{"any"}, Disks: []lvm.Bytes{40 * lvm.GiB}},
		lvmtest.Group{Name: "vg-sata", Tags: []string{"any"}, Disks: []lvm.Bytes{60 * lvm.GiB, 40 * lvm.GiB}},
	)
	host := node.Start(t, testConfig)
	return New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, CheckFileSystem: checkFileSystem,
		CheckMountOptions: checkMountOptions, MinimumSize: minimumSize}), node
}

// checkFileSystem stands for the Node service's own check: three types, and one option.
func checkFileSystem(fsType, options string) error {
	if !slices.Contains([]string{"ext4", "xfs", "btrfs"}, fsType) {
		return lvm.Errorf(lvm.KindInvalid, "the file system type %q is not made here", fsType)
	}
	if options != "" && options != "-m 1" {
		return lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q are not allowed for %s", options, fsType)
	}
	return nil
}

// checkMountOptions and minimumSize stand for the Node service's, too.
func checkMountOptions(fsType string, options []string) error {
	for _, option := range options {
		if option != "noatime" {
			return lvm.Errorf(lvm.KindInvalid, "the mount option %q is not allowed for %s", option, fsType)
		}
	}
	return nil
}

func minimumSize(fsType string) lvm.Bytes {
	if fsType == "xfs" {
		return 300 * lvm.MiB
	}
	return 0
}

func mustCreate(t *testing.T, s *Server, req *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	reply, err := s.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatalf("create %s: %v", req.GetName(), err)
	}
	return reply.GetVolume()
}

// expectKind fails unless the error is of the kind and says all of the words.
func expectKind(t *testing.T, err error, kind lvm.Kind, says ...string) {
	t.Helper()
	if err == nil || lvm.KindOf(err) != kind {
		t.Errorf("got kind %d, want %d: %v", lvm.KindOf(err), kind, err)
		return
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the message does not say %q: %v", words, err)
		}
	}
}

var must = check.Must
