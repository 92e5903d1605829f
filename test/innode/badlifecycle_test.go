//go:build innode

package innode

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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

// keepMount starts a process that keeps the file system at a path mounted, at another path and for itself alone.
func keepMount(t *testing.T, path string) *os.Process {
	t.Helper()
	keeper := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-ec", `mount --bind "$1" "$2"; echo ready; exec sleep infinity`, "sh", path, t.TempDir())
	ready, err := keeper.StdoutPipe()
	must(t, err)
	must(t, keeper.Start())
	t.Cleanup(func() {
		_ = keeper.Process.Kill() // it may have ended
		_ = keeper.Wait()
	})
	_, err = ready.Read(make([]byte, len("ready\n")))
	must(t, err)
	return keeper.Process
}

// What is in use is not deleted; calls that come twice, early or late, do what is left to do.
func TestRepeatedAndOutOfOrderCalls(t *testing.T) {
	c := connect(t)
	v := c.create(t, thinRequest("odd-thin", 64*mebibyte))
	dir := t.TempDir()
	staging, target, file := filepath.Join(dir, "staging"), filepath.Join(dir, "target"), filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("theirs"), 0o600))
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
	refusal{"publish before stage", codes.FailedPrecondition, "staged", publish}.check(t, before)
	refusal{"a staging path that is a file", codes.FailedPrecondition, "a file", func() error { return stage(file) }}.check(t, before)
	for range 2 {
		must(t, stage(staging))
	}
	for range 2 {
		must(t, publish())
	}
	refusal{"deleting an open volume", codes.FailedPrecondition, "is in use by the mount at", remove}.check(t, before)
	refusal{"unstage under a pod", codes.OK, "", func() error {
		_, err := c.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging})
		return err
	}}.check(t, before)
	refusal{"deleting a volume that only a pod has", codes.FailedPrecondition, "is in use by the mount at", remove}.check(t, before)
	hidden := keepMount(t, target)
	for range 2 {
		c.unmount(t, v, staging, target)
	}
	err := remove()
	command := regexp.MustCompile(`grep -lwE .* /proc/\[0-9\]\*/mountinfo`).FindString(status.Convert(err).Message())
	if status.Code(err) != codes.FailedPrecondition || command == "" {
		t.Fatalf("deleting a volume whose mount another process has: %v", err)
	}
	if found := output(t, "sh", "-c", command+"; true"); found != fmt.Sprintf("/proc/%d/mountinfo", hidden.Pid) {
		t.Errorf("%s prints %q, and process %d has the mount", command, found, hidden.Pid)
	}
	must(t, hidden.Kill())
	if text, err := os.ReadFile(file); err != nil || string(text) != "theirs" {
		t.Errorf("the file reads %q, %v", text, err)
	}
}
