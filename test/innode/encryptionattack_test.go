//go:build innode

package innode

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The LUKS2 header (LUKS2 On-Disk Format Specification): two copies, each with a checksum.
const (
	luksCopy     = 16 << 10
	luksHeader   = 16 * mebibyte
	luksChecksum = 448
)

// mappings are the dm-crypt devices of the node.
func mappings(t *testing.T) string {
	t.Helper()
	return output(t, "dmsetup", "ls", "--target", "crypt")
}

// headOf reads the LUKS header and key slots of a volume.
func (c client) headOf(t *testing.T, v *csi.Volume) []byte {
	t.Helper()
	f, err := os.Open(c.activeDevice(t, v))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// sealed gives both copies of a header the checksum of their content, as a person who forges one does.
func sealed(head []byte) []byte {
	for at := 0; at < 2*luksCopy; at += luksCopy {
		copied := head[at : at+luksCopy]
		clear(copied[luksChecksum : luksChecksum+64])
		sum := sha256.Sum256(copied)
		copy(copied[luksChecksum:], sum[:])
	}
	return head
}

// closedVolume is an encrypted volume that was staged once, and has a file.
func (c client) closedVolume(t *testing.T, name string, secret map[string]string) *csi.Volume {
	t.Helper()
	v := c.create(t, encrypted(createRequest(name, 32*mebibyte)))
	staging, target := filepath.Join(t.TempDir(), "staging"), filepath.Join(t.TempDir(), "target")
	if err := os.Mkdir(staging, 0o750); err != nil {
		t.Fatal(err)
	}
	o := opened{c, v, mountCapability("ext4"), staging, target}
	if err := o.stage(t, secret); err != nil {
		t.Fatal(err)
	}
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

// TestTamperedHeader: a person who writes to the disk changes the header of a volume, with right checksums. The driver
// refuses it with a message that names the change, starts nothing, and changes nothing; with the old header the volume opens again.
func TestTamperedHeader(t *testing.T) {
	c, secret := connect(t), newSecret(t)
	v := c.closedVolume(t, "tampered", secret)
	device, right := c.activeDevice(t, v), c.headOf(t, v)
	replace := func(old, with string) []byte {
		if len(old) != len(with) || bytes.Count(right, []byte(old)) < 2 {
			t.Fatalf("the header has no %q in both copies", old)
		}
		return sealed(bytes.ReplaceAll(right, []byte(old), []byte(with)))
	}
	before := mappings(t)
	for what, test := range map[string]struct {
		head []byte
		says string
	}{
		"no encryption of the data":     {replace(`"encryption":"aes-xts-plain64","sector`, `"encryption":"cipher_null-ecb","sector`), "cipher_null-ecb"},
		"a key slot that any key opens": {replace(`"encryption":"aes-xts-plain64","key_size"`, `"encryption":"cipher_null-ecb","key_size"`), "cipher_null-ecb"},
		"a costly derivation":           {replace(`"iterations":1000`, `"iterations":9e99`), "9e99"},
		"data over the header":          {replace(`"offset":"16777216"`, `"offset":"00004096"`), "4096"},
		"another program's subsystem":   {sealed(bytes.ReplaceAll(bytes.Clone(right), []byte("nodelvm\x00"), []byte("xodelvm\x00"))), "xodelvm"},
		"the header of another volume":  {c.headOf(t, c.closedVolume(t, "others", secret)), "another volume's"},
		"no header":                     {make([]byte, luksCopy*2), "is missing"},
	} {
		overwrite(t, device, right)
		overwrite(t, device, test.head)
		sum := ends(t, device)
		r := stageRequest(v, filepath.Join(t.TempDir(), "staging"), mountCapability("ext4"))
		r.Secrets = secret
		_, err := c.NodeStageVolume(t.Context(), r)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), v.GetVolumeId()) {
			t.Errorf("%s: %v, want FailedPrecondition that names the volume and says %q", what, err, test.says)
		}
		if ends(t, device) != sum || mappings(t) != before {
			t.Errorf("%s: the driver changed the device, or opened it", what)
		}
	}
	overwrite(t, device, right)
	o := c.opened(t, v, mountCapability("ext4"), secret)
	reads(t, filepath.Join(o.target, "text"), "tampered")
}

// TestSecretOfAnotherProgram: a class that names a Secret which is not a key gets an error that tells nothing of it.
func TestSecretOfAnotherProgram(t *testing.T) {
	c, before := connect(t), mappings(t)
	v := c.create(t, encrypted(createRequest("foreign-secret", 32*mebibyte)))
	for what, secret := range map[string]map[string]string{
		"other fields": {"tls.key": "hunter2-private", "token": "hunter2-token"},
		"a short key":  {"key": "hunter2-short", "tls.key": "hunter2-private"},
	} {
		r := stageRequest(v, filepath.Join(t.TempDir(), "staging"), mountCapability("ext4"))
		r.Secrets = secret
		_, err := c.NodeStageVolume(t.Context(), r)
		if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "tls.key") || strings.Contains(err.Error(), "token") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := mappings(t); after != before {
		t.Errorf("the node had the mappings %q and has %q", before, after)
	}
}
