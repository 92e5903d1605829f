//go:build innode

package innode

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/report"
)

const plaintext = "nodelvm plaintext 0123456789 "

// newSecret is a Secret with a random key.
func newSecret(t *testing.T) map[string]string {
	t.Helper()
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"key": hex.EncodeToString(key)}
}

// secretOf is a Secret for the volume of a request; nil if that is not encrypted.
func secretOf(t *testing.T, r *csi.CreateVolumeRequest) map[string]string {
	t.Helper()
	if r.GetParameters()["encryption"] == "" {
		return nil
	}
	return newSecret(t)
}

// encrypted adds the parameter that asks for encryption.
func encrypted(r *csi.CreateVolumeRequest) *csi.CreateVolumeRequest {
	r.Parameters["encryption"] = "luks2"
	return r
}

// opened is a volume that is staged and published; it is unmounted when the test ends.
type opened struct {
	client
	v               *csi.Volume
	capability      *csi.VolumeCapability
	staging, target string
}

func (c client) opened(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability, secret map[string]string) opened {
	t.Helper()
	o := c.staged(t, v, capability, secret, filepath.Join(t.TempDir(), "target"))
	must(t, o.publish(t))
	return o
}

// staged is opened without the publication, for a target in any folder.
func (c client) staged(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability, secret map[string]string, target string) opened {
	t.Helper()
	o := opened{c, v, capability, filepath.Join(t.TempDir(), "staging"), target}
	must(t, os.Mkdir(o.staging, 0o750))
	must(t, os.MkdirAll(filepath.Dir(target), 0o750))
	must(t, o.stage(t, secret))
	t.Cleanup(func() { c.unmount(t, v, o.staging, target) })
	return o
}

func (o opened) publish(t *testing.T) error {
	_, err := o.NodePublishVolume(t.Context(), publishRequest(o.v, o.staging, o.target, o.capability))
	return err
}

func (o opened) stage(t *testing.T, secret map[string]string) error {
	r := stageRequest(o.v, o.staging, o.capability)
	r.Secrets = secret
	_, err := o.NodeStageVolume(t.Context(), r)
	return err
}

func (o opened) grow(t *testing.T, size int64, secret map[string]string) error {
	_, err := o.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: o.v.GetVolumeId(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: o.capability})
	if err != nil {
		return err
	}
	_, err = o.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: o.v.GetVolumeId(), VolumePath: o.target, StagingTargetPath: o.staging,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: o.capability, Secrets: secret})
	return err
}

// shows counts the plaintext on the logical volume.
func shows(t *testing.T, v *csi.Volume) int {
	t.Helper()
	name := filepath.Base(v.GetVolumeId())
	path := strings.TrimSpace(output(t, realLVM, "lvs", "--noheadings", "-o", "lv_path", "-S", "lv_name="+name))
	return counts(t, path, map[string]string{"plaintext": plaintext})["plaintext"]
}

// TestEncryptedFileSystem: from the first stage to the deletion, with an expansion and a restart of the driver while the volume is in use.
// NODELVM_TEST_ENCRYPTED=all adds the other file systems and layouts.
func TestEncryptedFileSystem(t *testing.T) {
	type encryptedCase struct {
		fsType     string
		size       int64
		parameters map[string]string
	}
	cases := map[string]encryptedCase{
		"linear": {"ext4", 64 * mebibyte, sanityClasses["linear"]},
		"xfs":    {"xfs", 320 * mebibyte, sanityClasses["thin"]},
	}
	if allEncrypted() {
		maps.Copy(cases, map[string]encryptedCase{
			"thin":           {"ext4", 64 * mebibyte, sanityClasses["thin"]},
			"btrfs":          {"btrfs", 256 * mebibyte, sanityClasses["thin"]},
			"raid1":          {"ext4", 64 * mebibyte, sanityClasses["raid1"]},
			"xfs on raid1":   {"xfs", 320 * mebibyte, sanityClasses["raid1"]},
			"btrfs on raid1": {"btrfs", 256 * mebibyte, sanityClasses["raid1"]},
		})
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request := createRequest("encrypted "+name, test.size)
			request.Parameters, request.VolumeCapabilities[0] = maps.Clone(test.parameters), mountCapability(test.fsType)
			liveEncrypted(t, encrypted(request))
		})
	}
}

func liveEncrypted(t *testing.T, request *csi.CreateVolumeRequest) {
	t.Helper()
	c, secret, capability := connect(t), newSecret(t), request.GetVolumeCapabilities()[0]
	size := request.GetCapacityRange().GetRequiredBytes()
	v := c.create(t, request)
	if v.GetCapacityBytes() != size {
		t.Errorf("it has %d bytes", v.GetCapacityBytes())
	}
	o := c.opened(t, v, capability, secret)
	text := strings.Repeat(plaintext, 40000)
	write(t, filepath.Join(o.target, "text"), text)
	if n := shows(t, v); n > 0 {
		t.Errorf("the logical volume shows the plaintext %d times", n)
	}
	if shown := volumeOnPage(t, v).Encryption; shown != "luks2" {
		t.Errorf("the status page has the encryption %q", shown)
	}
	renewDriver(t)
	o.client = connect(t)
	if err := o.stage(t, secret); err != nil {
		t.Errorf("staged again after a restart: %v", err)
	}
	if err := o.grow(t, size+32*mebibyte, nil); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "node-expand-secret-name") {
		t.Errorf("expanded without a Secret: %v", err)
	}
	before := totalOf(t, o)
	if err := o.grow(t, size+32*mebibyte, secret); err != nil {
		t.Errorf("expansion: %v", err)
	}
	if after := totalOf(t, o); after < before+24*mebibyte {
		t.Errorf("the expansion took the file system from %d to %d bytes", before, after)
	}
	write(t, filepath.Join(o.target, "later"), text)
	o.unmount(t, v, o.staging, o.target)
	if err := o.stage(t, newSecret(t)); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "key") {
		t.Errorf("staged with another key: %v", err)
	}
	if err := o.stage(t, nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "csi.nodeStageSecretRef") {
		t.Errorf("staged without a Secret: %v", err)
	}
	again := o.opened(t, v, capability, secret)
	for _, file := range []string{"text", "later"} {
		reads(t, filepath.Join(again.target, file), text)
	}
}

// volumeOnPage is a volume as the status page shows it.
func volumeOnPage(t *testing.T, v *csi.Volume) report.Volume {
	t.Helper()
	for _, shown := range ask(t).Volumes {
		if shown.ID == v.GetVolumeId() {
			return shown
		}
	}
	t.Fatalf("the status page lacks volume %s", v.GetVolumeId())
	return report.Volume{}
}

// totalOf is the size of a published file system in bytes.
func totalOf(t *testing.T, o opened) int64 {
	t.Helper()
	stats, err := o.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: o.v.GetVolumeId(), VolumePath: o.target})
	must(t, err)
	return stats.GetUsage()[0].GetTotal()
}

func allEncrypted() bool { return os.Getenv("NODELVM_TEST_ENCRYPTED") == "all" }

// TestDeletedEncryptedVolumeIsErased: its extents are free at once, and nothing of its header or its plaintext is left on the disks.
func TestDeletedEncryptedVolumeIsErased(t *testing.T) {
	c, secret := connect(t), newSecret(t)
	made, err := c.CreateVolume(t.Context(), encrypted(createRequest("encrypted-deleted", 512*mebibyte)))
	must(t, err)
	v := made.GetVolume()
	where := onDisk(t, filepath.Base(v.GetVolumeId()))
	o := c.opened(t, v, mountCapability("ext4"), secret)
	write(t, filepath.Join(o.target, "text"), strings.Repeat(plaintext, 10000))
	lv := strings.TrimSpace(output(t, realLVM, "lvs", "--noheadings", "-o", "lv_path", "-S", "lv_name="+filepath.Base(v.GetVolumeId())))
	header := strings.TrimSpace(output(t, "cryptsetup", "luksUUID", lv))
	if counts(t, lv, map[string]string{"header": header})["header"] == 0 {
		t.Fatalf("the volume has no LUKS header with the UUID %s", header)
	}
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("deleted while it is in use: %v", err)
	}
	o.unmount(t, v, o.staging, o.target)
	if err := o.stage(t, secret); err != nil { // as a pod leaves it whose start failed and was given up
		t.Fatal(err)
	}
	must(t, command("umount", o.staging))
	c.remove(t, v.GetVolumeId())
	patterns := map[string]string{"its LUKS header": header, "the plaintext": plaintext} // not read before: the disk's cache would have what was there
	for what, n := range countsIn(t, where, patterns) {
		t.Errorf("the disk still has %s, %d times", what, n)
	}
}

// onDisk returns the extents of a logical volume with one segment, as they are on its disk.
func onDisk(t *testing.T, name string) *io.SectionReader {
	t.Helper()
	var disk string
	var first, last, start, extent int64
	text := output(t, realLVM, "lvs", "--noheadings", "--units", "b", "--nosuffix", "-o", "seg_pe_ranges,vg_extent_size", "-S", "lv_name="+name)
	if n, err := fmt.Sscanf(strings.ReplaceAll(text, ":", " "), "%s %d-%d %d", &disk, &first, &last, &extent); n != 4 || strings.Count(text, "\n") > 1 {
		t.Fatalf("%q: %v", text, err)
	}
	text = output(t, realLVM, "pvs", "--noheadings", "--units", "b", "--nosuffix", "-o", "pe_start", disk)
	if n, err := fmt.Sscan(text, &start); n != 1 {
		t.Fatalf("%q: %v", text, err)
	}
	f, err := os.Open(disk)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return io.NewSectionReader(f, start+first*extent, (last-first+1)*extent)
}

// counts reads a device in parts, and counts what is on it.
func counts(t *testing.T, device string, patterns map[string]string) map[string]int {
	t.Helper()
	f, err := os.Open(device)
	must(t, err)
	defer func() { _ = f.Close() }()
	return countsIn(t, f, patterns)
}

func countsIn(t *testing.T, device io.ReaderAt, patterns map[string]string) map[string]int {
	t.Helper()
	const part, overlap = 4 * mebibyte, 64
	found, buffer := map[string]int{}, make([]byte, part+overlap)
	for at := int64(0); ; at += part {
		n, err := device.ReadAt(buffer, at)
		for what, pattern := range patterns {
			if k := bytes.Count(buffer[:n], []byte(pattern)); k > 0 {
				found[what] += k
			}
		}
		if err == io.EOF {
			return found
		}
		must(t, err)
	}
}
