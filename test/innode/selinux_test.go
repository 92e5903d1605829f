//go:build innode

package innode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// policy has the labels of the test. It allows everything: checkpolicy -U allow, and one rule for the one class that must exist.
const policy = `class process
sid kernel
sid security
sid unlabeled
class process { transition dyntransition }
sensitivity s0;
dominance { s0 }
category c0; category c1; category c2;
level s0:c0.c2;
mlsconstrain process transition (h1 dom h2);
type kernel_t;
type file_t;
type container_file_t;
role system_r;
role system_r types kernel_t;
allow kernel_t self:process { transition dyntransition };
user system_u roles system_r level s0 range s0 - s0:c0.c2;
sid kernel system_u:system_r:kernel_t:s0 - s0:c0.c2
sid security system_u:object_r:file_t:s0
sid unlabeled system_u:object_r:file_t:s0
fs_use_xattr ext4 system_u:object_r:file_t:s0;
fs_use_xattr xfs system_u:object_r:file_t:s0;
fs_use_xattr btrfs system_u:object_r:file_t:s0;
genfscon rootfs / system_u:object_r:file_t:s0
`

// policyVersion is of Linux 4.8: a newer checkpolicy writes what an older kernel cannot load.
const policyVersion = "30"

const (
	podLabel   = "system_u:object_r:container_file_t:s0:c1,c2"
	otherLabel = "system_u:object_r:container_file_t:s0:c0,c1"
)

// TestSELinuxMount: on a node with SELinux, a volume gets the label that the kubelet requests as a mount option, or an error. The driver runs no
// mount(8), and sees neither /etc/selinux nor a selinuxfs. Before the kernel has a policy, as without SELinux, the option has no effect.
func TestSELinuxMount(t *testing.T) {
	c := connect(t)
	early := newLabels(t, c, "ext4", 64*mebibyte)
	for range 2 {
		must(t, errors.Join(early.stage(t, podLabel), early.publish(t, early.target, podLabel)))
	}
	early.unmount(t, early.volume, early.staging, early.target)
	loadPolicy(t)
	for fsType, size := range map[string]int64{"ext4": 64 * mebibyte, "xfs": 320 * mebibyte, "btrfs": 256 * mebibyte} {
		t.Run(fsType, func(t *testing.T) {
			l := newLabels(t, c, fsType, size)
			l.refused(t, "not_a_label")
			l.mounted(t)
			l.changed(t)
			l.unlabelled(t)
		})
	}
}

// labels is a volume that is mounted with several labels, one after the other.
type labels struct {
	client
	fsType, staging, target string
	volume                  *csi.Volume
}

func newLabels(t *testing.T, c client, fsType string, size int64) labels {
	t.Helper()
	dir := t.TempDir()
	l := labels{c, fsType, filepath.Join(dir, "staging"), filepath.Join(dir, "target"), nil}
	must(t, os.Mkdir(l.staging, 0o750))
	l.volume = c.create(t, createRequest(t.Name(), size, func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{mountCapability(fsType)}
	}))
	return l
}

// capability has the option as the kubelet writes it; without one for "".
func (l labels) capability(label string) *csi.VolumeCapability {
	capability := mountCapability(l.fsType)
	if label != "" {
		capability.GetMount().MountFlags = []string{"noatime", `context="` + label + `"`}
	}
	return capability
}

func (l labels) stage(t *testing.T, label string) error {
	_, err := l.NodeStageVolume(t.Context(), stageRequest(l.volume, l.staging, l.capability(label)))
	return err
}

func (l labels) publish(t *testing.T, target, label string) error {
	_, err := l.NodePublishVolume(t.Context(), publishRequest(l.volume, l.staging, target, l.capability(label)))
	return err
}

// refused: the error of a label that the kernel refuses names it, and no damage; nothing is mounted.
func (l labels) refused(t *testing.T, label string) {
	t.Helper()
	err := l.stage(t, label)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "SELinux") || strings.Contains(err.Error(), "damaged") {
		t.Errorf("%s: %v", label, err)
	}
	if mounts := output(t, "cat", "/proc/self/mounts"); strings.Contains(mounts, l.staging+" ") {
		t.Errorf("the volume is mounted without its label:\n%s", mounts)
	}
}

// mounted: each file has the label, also after the same calls with the categories in another order.
func (l labels) mounted(t *testing.T) {
	t.Helper()
	for _, label := range []string{podLabel, strings.Replace(podLabel, "c1,c2", "c2,c1", 1)} {
		_, tools := processes(t, func() error { return errors.Join(l.stage(t, label), l.publish(t, l.target, label)) })
		if slices.Contains(tools, "mount") {
			t.Errorf("%s: the driver ran %q", label, tools)
		}
	}
	write(t, filepath.Join(l.target, "file"), "text")
	l.check(t, podLabel)
}

// changed: a request with another label changes nothing, also for another staging path.
func (l labels) changed(t *testing.T) {
	t.Helper()
	for what, err := range map[string]error{
		"stage": l.stage(t, otherLabel), "publish": l.publish(t, l.target, otherLabel), "publish elsewhere": l.publish(t, l.target+"-2", otherLabel),
	} {
		if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), podLabel) || !strings.Contains(err.Error(), otherLabel) {
			t.Errorf("%s with another label: %v", what, err)
		}
	}
	elsewhere := l
	elsewhere.staging = l.staging + "-2"
	must(t, os.Mkdir(elsewhere.staging, 0o750))
	elsewhere.refused(t, otherLabel)
	l.check(t, podLabel)
}

// unlabelled: unmounted and mounted without the option, the files are there and have another label. A label needs a new mount.
func (l labels) unlabelled(t *testing.T) {
	t.Helper()
	l.unmount(t, l.volume, l.staging, l.target)
	must(t, errors.Join(l.stage(t, ""), l.publish(t, l.target, "")))
	if text, err := os.ReadFile(filepath.Join(l.target, "file")); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if err := l.stage(t, podLabel); status.Code(err) != codes.AlreadyExists {
		t.Errorf("with a label, but it is mounted without one: %v", err)
	}
	l.check(t, "system_u:object_r:file_t:s0")
	l.unmount(t, l.volume, l.staging, l.target)
}

func (l labels) check(t *testing.T, want string) {
	t.Helper()
	for _, path := range []string{l.target, filepath.Join(l.target, "file")} {
		if got := label(t, path); got != want {
			t.Errorf("%s has the label %s, want %s", path, got, want)
		}
	}
}

// loadPolicy enables SELinux, in permissive mode. The kernel keeps the policy, but no program sees it.
func loadPolicy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	source, compiled, fs := filepath.Join(dir, "policy.conf"), filepath.Join(dir, "policy"), filepath.Join(dir, "selinuxfs")
	must(t, os.WriteFile(source, []byte(policy), 0o600))
	must(t, command("checkpolicy", "-c", policyVersion, "-M", "-U", "allow", "-o", compiled, source))
	text, err := os.ReadFile(compiled)
	must(t, errors.Join(err, os.Mkdir(fs, 0o700), command("mount", "-t", "selinuxfs", "none", fs)))
	must(t, errors.Join(os.WriteFile(filepath.Join(fs, "load"), text, 0), command("umount", fs)))
}

func label(t *testing.T, path string) string {
	t.Helper()
	text := make([]byte, 256)
	n, err := unix.Getxattr(path, "security.selinux", text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return strings.TrimRight(string(text[:n]), "\x00")
}
