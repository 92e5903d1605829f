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
	must(t, c.publish(t, v, reader, true))
	if err := os.WriteFile(reader, []byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write to it: %v", err)
	}
	if err := c.publish(t, v, writer, false); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a writer beside it: %v", err)
	}
	must(t, c.expand(t, v, 128*mebibyte))
	if err := os.WriteFile(reader, []byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write to it after it has grown: %v", err)
	}
	device := c.activeDevice(t, v)
	must(t, c.unpublish(t, v.GetVolumeId(), reader))
	must(t, c.publish(t, v, writer, false))
	write(t, writer, "written")
	must(t, c.unpublish(t, v.GetVolumeId(), writer))
	must(t, command("blockdev", "--setro", device))
	if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(v.GetVolumeId(), "/")
	eventually(t, time.Minute, "the volume is wiped and removed", func() bool { return !slices.Contains(lvNames(t), name) })
}
