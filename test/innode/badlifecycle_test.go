//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const elsewhere = "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG/pvc-1"

// refusal is a call that must fail: with the code that the spec names, in words for a person, and changing nothing, as
// LVM's commit counters tell.
type refusal struct {
	what string
	code codes.Code
	says string
	call func() error
}

func (r refusal) check(t *testing.T, before string) {
	t.Helper()
	err := r.call()
	if status.Code(err) != r.code || !strings.Contains(status.Convert(err).Message(), r.says) {
		t.Errorf("%s: answers %v, want %s with the words %q", r.what, err, r.code, r.says)
	}
	t.Logf("%s: it says: %s", r.what, status.Convert(err).Message())
	if after := seqnos(t); after != before {
		t.Errorf("%s: a group was changed: %q before, %q after", r.what, before, after)
	}
}

func TestBadInputInVolumeLifecycle(t *testing.T) {
	c := connect(t)
	thin, other := c.create(t, thinRequest("bad-thin", 64*mebibyte)), c.create(t, thinRequest("bad-other", 64*mebibyte))
	thick := c.create(t, createRequest("bad-thick", 64*mebibyte))
	snapshot := c.snapshot(t, "bad", other)
	if err := command("lvcreate", "-qq", "-y", "-l", "1", "-n", "admins", "vg-b"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := command("lvremove", "-qq", "-y", "vg-b/admins"); err != nil {
			t.Error(err)
		}
	})
	admins := output(t, realLVM, "vgs", "--noheadings", "-o", "vg_uuid", "vg-b") + "/admins"
	group, _, _ := strings.Cut(thin.GetVolumeId(), "/")
	settled(t)
	before := seqnos(t)

	expand := func(handle string, required, limit int64) func() error {
		return func() error {
			_, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: handle, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit},
			})
			return err
		}
	}
	snap := func(name, handle string) func() error {
		return func() error {
			_, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: handle})
			return err
		}
	}
	create := func(r *csi.CreateVolumeRequest) func() error {
		return func() error { _, err := c.CreateVolume(t.Context(), r); return err }
	}
	linear := func(r *csi.CreateVolumeRequest) {
		r.Parameters = map[string]string{"volumeGroup": "vg-a", "layout": "linear"}
	}
	for _, r := range []refusal{
		{"shrinking", codes.OutOfRange, "64 MiB", expand(thick.GetVolumeId(), 8*mebibyte, 32*mebibyte)},
		{"expanding beyond the group", codes.OutOfRange, "vg-", expand(thick.GetVolumeId(), 1<<50, 0)},
		{"expanding beyond the pool", codes.OutOfRange, "nodelvm-thin", expand(thin.GetVolumeId(), 1<<50, 0)},
		{"expanding a missing volume", codes.NotFound, "never-made", expand(group+"/never-made", 128*mebibyte, 0)},
		{"expanding another node's volume", codes.NotFound, nodeName, expand(elsewhere, 128*mebibyte, 0)},
		{"expanding an admin's volume", codes.NotFound, "admins", expand(admins, 128*mebibyte, 0)},
		{"a snapshot of another node's volume", codes.NotFound, nodeName, snap("s", elsewhere)},
		{"a snapshot of an admin's volume", codes.NotFound, "admins", snap("s", admins)},
		{"a snapshot of a missing volume", codes.NotFound, "never-made", snap("s", group+"/never-made")},
		{"a snapshot of a thick volume", codes.InvalidArgument, "thin", snap("s", thick.GetVolumeId())},
		{"a snapshot's name for another source", codes.AlreadyExists, "bad", snap("bad", thin.GetVolumeId())},
		{"a restore smaller than its source", codes.OutOfRange, "64 MiB", create(copyRequest("bad-copy", 32*mebibyte, snapshot.GetSnapshotId(), ""))},
		{"a clone smaller than its source", codes.OutOfRange, "64 MiB", create(copyRequest("bad-copy", 32*mebibyte, "", other.GetVolumeId()))},
		{"a restore across layouts", codes.InvalidArgument, "thin", create(copyRequest("bad-copy", 64*mebibyte, snapshot.GetSnapshotId(), "", linear))},
		{"a clone of a thick volume", codes.InvalidArgument, "thin", create(copyRequest("bad-copy", 64*mebibyte, "", thick.GetVolumeId()))},
		{"a restore from another node's snapshot", codes.ResourceExhausted, nodeName, create(copyRequest("bad-copy", 64*mebibyte, strings.Replace(elsewhere, "pvc-1", "s-1", 1), ""))},
		{"a restore larger than the room where its source is", codes.OutOfRange, nodeName, create(copyRequest("bad-copy", 1<<50, snapshot.GetSnapshotId(), ""))},
		{"deleting another node's snapshot", codes.FailedPrecondition, nodeName, func() error {
			_, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: strings.Replace(elsewhere, "pvc-1", "s-1", 1)})
			return err
		}},
		{"deleting an admin's volume", codes.FailedPrecondition, "admins", func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: admins})
			return err
		}},
	} {
		r.check(t, before)
	}
	if err := expand(thick.GetVolumeId(), 8*mebibyte, 0)(); err != nil {
		t.Errorf("a request that is met already: %v", err)
	}
}

// What is in use is not deleted; calls that come twice, early or late, do what is left to do.
func TestRepeatedAndOutOfOrderCalls(t *testing.T) {
	c := connect(t)
	for name, r := range map[string]*csi.CreateVolumeRequest{"thick": createRequest("odd", 64*mebibyte), "thin": thinRequest("odd-thin", 64*mebibyte)} {
		v := c.create(t, r)
		dir := t.TempDir()
		staging, target, file := filepath.Join(dir, "staging"), filepath.Join(dir, "target"), filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		capability := mountCapability("ext4")
		stage := func(at string) error {
			_, err := c.NodeStageVolume(t.Context(), stageRequest(v, at, capability))
			return err
		}
		publish := func() error {
			_, err := c.NodePublishVolume(t.Context(), publishRequest(v, staging, target, capability))
			return err
		}
		remove := func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
			return err
		}
		c.unmount(t, v, staging, target) // before anything was there
		settled(t)
		before := seqnos(t)
		refusal{name + ": publish before stage", codes.FailedPrecondition, "staged", publish}.check(t, before)
		refusal{name + ": a staging path that is a file", codes.FailedPrecondition, "a file", func() error { return stage(file) }}.check(t, before)
		for range 2 {
			if err := stage(staging); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := publish(); err != nil {
				t.Fatal(err)
			}
		}
		refusal{name + ": deleting an open volume", codes.FailedPrecondition, "is in use by the mount at", remove}.check(t, before)
		refusal{name + ": unstage under a pod", codes.OK, "", func() error {
			_, err := c.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging})
			return err
		}}.check(t, before)
		refusal{name + ": deleting a volume that only a pod has", codes.FailedPrecondition, "is in use by the mount at", remove}.check(t, before)
		for range 2 {
			c.unmount(t, v, staging, target)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "theirs" {
			t.Errorf("the file reads %q, %v", text, err)
		}
	}
}
