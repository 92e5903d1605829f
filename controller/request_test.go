package controller

import (
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// requestOf returns the request that csi-provisioner makes for a claim without a source.
func requestOf(c api.PodClaim, namespace string) *csi.CreateVolumeRequest {
	req := &csi.CreateVolumeRequest{
		Name:          api.PrefixVolume + c.UID,
		CapacityRange: &csi.CapacityRange{RequiredBytes: c.Size},
		Parameters:    map[string]string{api.ParameterClaimNamespace: namespace, api.ParameterClaimName: c.Name},
	}
	maps.Copy(req.Parameters, c.Parameters)
	for _, mode := range c.AccessModes {
		capability := &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: c.Parameters[api.ParameterFSType]}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessModes[mode]},
		}
		if c.Block {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}
		req.VolumeCapabilities = append(req.VolumeCapabilities, capability)
	}
	return req
}

// accessModes maps a claim's access modes to those that csi-provisioner passes to a driver with SINGLE_NODE_MULTI_WRITER.
var accessModes = map[string]csi.VolumeCapability_AccessMode_Mode{
	"ReadWriteOnce":    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	"ReadWriteOncePod": csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	"ReadOnlyMany":     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	"ReadWriteMany":    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// TestPeerSpec: a peer has the same spec as its request, or both are refused.
func TestPeerSpec(t *testing.T) {
	for what, change := range map[string]func(*api.PodClaim){
		"a file system":        func(*api.PodClaim) {},
		"another file system":  func(c *api.PodClaim) { c.Parameters[api.ParameterFSType] = "xfs" },
		"an unknown one":       func(c *api.PodClaim) { c.Parameters[api.ParameterFSType] = "ntfs" },
		"too small for it":     func(c *api.PodClaim) { c.Parameters[api.ParameterFSType], c.Size = "xfs", 1 },
		"a raw device":         func(c *api.PodClaim) { c.Block = true },
		"one pod":              func(c *api.PodClaim) { c.AccessModes = []string{"ReadWriteOncePod"} },
		"several modes":        func(c *api.PodClaim) { c.AccessModes = append(c.AccessModes, "ReadWriteOncePod") },
		"several nodes":        func(c *api.PodClaim) { c.AccessModes = append(c.AccessModes, "ReadWriteMany") },
		"readers":              func(c *api.PodClaim) { c.AccessModes = []string{"ReadOnlyMany"} },
		"a mode of later days": func(c *api.PodClaim) { c.AccessModes = []string{"ReadWriteNever"} },
		"no mode":              func(c *api.PodClaim) { c.AccessModes = nil },
		"no size":              func(c *api.PodClaim) { c.Size = 0 },
		"a negative size":      func(c *api.PodClaim) { c.Size = -1 },
		"encrypted":            func(c *api.PodClaim) { c.Parameters["encryption"], c.Block = "luks2", true },
		"risky mkfs options":   func(c *api.PodClaim) { c.Parameters["mkfsOptions"] = "-O ^has_journal" },
		"an unknown parameter": func(c *api.PodClaim) { c.Parameters["volumegroup"] = "vg" },
	} {
		c := claim("data", lvm.GiB, "vg-nvme")
		c.Parameters = maps.Clone(c.Parameters)
		change(&c)
		want, _, wrong := parser.parseCreate(requestOf(c, "shop"))
		got, err := parser.specOfClaim(c, "shop")
		if diff := gocmp.Diff(want, got); diff != "" && wrong == nil || (err == nil) != (wrong == nil) {
			t.Errorf("%s: %s; error %v, want %v", what, diff, err, wrong)
		}
	}
}
