package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestCreateVolumeRefusesWhatStagingRefuses: CreateVolume refuses what NodeStageVolume would refuse for as long as the claim lives.
func TestCreateVolumeRefusesWhatStagingRefuses(t *testing.T) {
	for _, test := range []struct {
		name, fsType string
		size         int64
		option       string
		code         codes.Code
		says         string
	}{
		{"xfs, too small", "xfs", 50 << 20, "noatime", codes.OutOfRange, "300 MiB"},
		{"btrfs, too small", "btrfs", 50 << 20, "noatime", codes.OutOfRange, "109 MiB"},
		{"bind", "ext4", 50 << 20, "bind", codes.InvalidArgument, `"bind"`},
		{"among others", "ext4", 50 << 20, "noatime,remount", codes.InvalidArgument, `remount`},
		{"as it should be", "ext4", 50 << 20, "noatime", codes.OK, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			clients, stop := serveFake(t, &bytes.Buffer{}, "error")
			defer stop()
			_, err := clients.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
				Name: "v", Parameters: map[string]string{"volumeGroup": "vg"}, CapacityRange: &csi.CapacityRange{RequiredBytes: test.size},
				VolumeCapabilities: []*csi.VolumeCapability{{
					AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: test.fsType, MountFlags: []string{test.option}}},
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
				}},
			})
			if status.Code(err) != test.code || !strings.Contains(status.Convert(err).Message(), test.says) {
				t.Errorf("got %v, want %s that says %q", err, test.code, test.says)
			}
		})
	}
}
