//go:build innode

package innode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// publish publishes a volume without staging it, as a raw device may be.
func (c client) publish(t *testing.T, v *csi.Volume, target string, readOnly bool) error {
	t.Helper()
	r := publishRequest(v, filepath.Join(t.TempDir(), "staging"), target, blockCapability())
	r.Readonly = readOnly
	_, err := c.NodePublishVolume(t.Context(), r)
	return err
}

func (c client) unpublish(t *testing.T, id, target string) error {
	t.Helper()
	_, err := c.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	return err
}

// A raw device that is published read-only takes no writes, and is wiped like any other, also if no request has made it
// writable again.
func TestReadOnlyRawDevice(t *testing.T) {
	c := connect(t)
	v := c.create(t, createRequest("read-only", 64*mebibyte, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
		r.Parameters["wipe"] = "zero"
	}))
	reader, writer := filepath.Join(t.TempDir(), "reader"), filepath.Join(t.TempDir(), "writer")
	if err := c.publish(t, v, reader, true); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(reader, []byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write to it: %v", err)
	}
	if err := c.publish(t, v, writer, false); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a writer beside it: %v", err)
	}
	if err := c.expand(t, v, 128*mebibyte); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(reader, []byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write to it after it has grown: %v", err)
	}
	device := c.activeDevice(t, v)
	if err := c.unpublish(t, v.GetVolumeId(), reader); err != nil {
		t.Fatal(err)
	}
	if err := c.publish(t, v, writer, false); err != nil {
		t.Fatal(err)
	}
	write(t, writer, "written")
	if err := c.unpublish(t, v.GetVolumeId(), writer); err != nil {
		t.Fatal(err)
	}
	if err := command("blockdev", "--setro", device); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(v.GetVolumeId(), "/")
	eventually(t, time.Minute, "the volume is wiped and removed", func() bool { return !slices.Contains(lvNames(t), name) })
}

// A raw device that is bound at a pod's path, but not open, is not deleted: the next volume would get its number, and appear there.
func TestBoundRawDeviceIsNotDeleted(t *testing.T) {
	c := connect(t)
	v := c.create(t, createRequest("bound", 64*mebibyte, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
	}))
	target := filepath.Join(t.TempDir(), "target")
	if err := c.publish(t, v, target, false); err != nil {
		t.Fatal(err)
	}
	_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "bound at "+target) {
		t.Errorf("deleted while it is bound: %v", err)
	}
	if err := c.unpublish(t, v.GetVolumeId(), target); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Errorf("deleted after that: %v", err)
	}
}

// What is mounted at a path is unmounted only for the volume that it is.
func TestUnmountKeepsAnotherVolume(t *testing.T) {
	c := connect(t)
	one := c.create(t, createRequest("one", 64*mebibyte))
	two := c.create(t, createRequest("two", 64*mebibyte))
	staging, target := c.mounted(t, one, mountCapability("ext4"))
	write(t, filepath.Join(target, "text"), "kept")
	for id, code := range map[string]codes.Code{two.GetVolumeId(): codes.FailedPrecondition, "garbage": codes.NotFound} {
		for _, path := range []string{staging, target} {
			if err := c.unpublish(t, id, path); status.Code(err) != code {
				t.Errorf("unpublish of %s at %s: %v", id, path, err)
			}
			if _, err := c.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path}); status.Code(err) != code {
				t.Errorf("unstage of %s at %s: %v", id, path, err)
			}
		}
	}
	reads(t, filepath.Join(target, "text"), "kept")
	r := stageRequest(one, staging, mountCapability("xfs"))
	if _, err := c.NodeStageVolume(t.Context(), r); status.Code(err) != codes.AlreadyExists {
		t.Errorf("staged again with another file system: %v", err)
	}
}
