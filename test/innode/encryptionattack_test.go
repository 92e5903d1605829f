//go:build innode

package innode

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A LUKS2 header with its key slots (LUKS2 On-Disk Format Specification).
const luksHeader = 16 * mebibyte

// mappings are the dm-crypt devices of the node.
func mappings(t *testing.T) string {
	t.Helper()
	return output(t, "dmsetup", "ls", "--target", "crypt")
}

// headOf reads the LUKS header and key slots of a volume.
func (c client) headOf(t *testing.T, v *csi.Volume) []byte {
	t.Helper()
	f, err := os.Open(c.activeDevice(t, v))
	must(t, err)
	defer func() { _ = f.Close() }()
	head := make([]byte, luksHeader)
	if _, err := io.ReadFull(f, head); err != nil {
		t.Fatal(err)
	}
	return head
}

func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_SYNC, 0)
	must(t, err)
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
}

// closedVolume is an encrypted volume that was staged once, and has a file.
func (c client) closedVolume(t *testing.T, name string, secret map[string]string) *csi.Volume {
	t.Helper()
	v := c.create(t, encrypted(createRequest(name, 32*mebibyte)))
	staging, target := filepath.Join(t.TempDir(), "staging"), filepath.Join(t.TempDir(), "target")
	must(t, os.Mkdir(staging, 0o750))
	o := opened{c, v, mountCapability("ext4"), staging, target}
	must(t, o.stage(t, secret))
	write(t, filepath.Join(staging, "text"), name)
	c.unmount(t, v, staging, target)
	return v
}

// TestTenantWritesLUKSHeader: a tenant writes a header of this driver on a raw block volume without encryption. It opens nothing at the next stage.
// The driver refuses a copy in a class with encryption, and a PersistentVolume that says that the volume is encrypted.
func TestTenantWritesLUKSHeader(t *testing.T) {
	c, secret := connect(t), newSecret(t)
	forged := c.headOf(t, c.closedVolume(t, "forgers-own", secret))
	v := c.create(t, thinRequest("tenants-raw", 32*mebibyte, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
	}))
	before := mappings(t)
	o := c.opened(t, v, blockCapability(), nil)
	overwrite(t, o.target, forged)
	o.unmount(t, v, o.staging, o.target)
	again := c.opened(t, v, blockCapability(), secret)
	data, err := os.ReadFile(again.target)
	if err != nil || !bytes.HasPrefix(data, forged) {
		t.Errorf("the tenant no longer reads what they wrote: %q, %v", data[:min(len(data), 64)], err)
	}
	snapshot := c.snapshot(t, "tenants-raw", v)
	for what, request := range map[string]*csi.CreateVolumeRequest{
		"restore": copyRequest("restore", 32*mebibyte, snapshot.GetSnapshotId(), ""), "clone": copyRequest("clone", 32*mebibyte, "", v.GetVolumeId()),
	} {
		request.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
		if _, err := c.CreateVolume(t.Context(), encrypted(request)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "encryption") {
			t.Errorf("an encrypted %s: %v", what, err)
		}
	}
	r := stageRequest(v, filepath.Join(t.TempDir(), "staging"), blockCapability())
	r.VolumeContext["nodelvm.io/encryption"], r.Secrets = "luks2", secret
	if _, err := c.NodeStageVolume(t.Context(), r); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not encrypted") {
		t.Errorf("staged as an encrypted volume: %v", err)
	}
	delete(r.VolumeContext, "nodelvm.io/encryption")
	if after := mappings(t); after != before {
		t.Errorf("the node had the mappings %q and has %q", before, after)
	}
}
