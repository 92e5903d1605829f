//go:build innode

package innode

import (
	"errors"
	"os"
	"path/filepath"
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

const (
	selinuxfs     = "/sys/fs/selinux"
	selinuxConfig = "/etc/selinux/config"
	podLabel      = "system_u:object_r:container_file_t:s0:c1,c2"
)

// TestSELinuxMount: on a node with SELinux, a volume gets the label that the kubelet requests as a mount option, or an error.
func TestSELinuxMount(t *testing.T) {
	loadPolicy(t)
	c := connect(t)
	labelled := func(fsType, label string) *csi.VolumeCapability {
		capability := mountCapability(fsType)
		capability.GetMount().MountFlags = []string{`context="` + label + `"`} // as the kubelet writes it
		return capability
	}
	volume := c.create(t, createRequest("label", 64*mebibyte))
	staging := t.TempDir()
	_, err := c.NodeStageVolume(t.Context(), stageRequest(volume, staging, labelled("ext4", podLabel)))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "seLinuxMount") {
		t.Errorf("without %s: %v, want FailedPrecondition and what to do", selinuxConfig, err)
	}
	if mounts := output(t, "cat", "/proc/self/mounts"); strings.Contains(mounts, staging) {
		t.Errorf("the volume is mounted without its label:\n%s", mounts)
	}
	must(t, errors.Join(os.MkdirAll(filepath.Dir(selinuxConfig), 0o755), os.WriteFile(selinuxConfig, []byte("SELINUX=permissive\nSELINUXTYPE=test\n"), 0o644)))
	t.Cleanup(func() {
		if err := os.Remove(selinuxConfig); err != nil {
			t.Error(err)
		}
	})
	for fsType, size := range map[string]int64{"ext4": 64 * mebibyte, "xfs": 320 * mebibyte, "btrfs": 256 * mebibyte} {
		t.Run(fsType, func(t *testing.T) {
			typed := func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{mountCapability(fsType)}
			}
			_, pod := c.mounted(t, c.create(t, createRequest("label-"+fsType, size, typed)), labelled(fsType, podLabel))
			file := filepath.Join(pod, "file")
			write(t, file, "text")
			for _, path := range []string{pod, file} {
				if got := label(t, path); got != podLabel {
					t.Errorf("%s has the label %s, want %s", path, got, podLabel)
				}
			}
		})
	}
	if _, err := c.NodeStageVolume(t.Context(), stageRequest(volume, staging, labelled("ext4", "not_a_label"))); status.Code(err) != codes.Internal {
		t.Errorf("with a label that the policy lacks: %v, want Internal", err)
	}
}

// loadPolicy enables SELinux, in permissive mode. The kernel keeps the policy after the test, but no program sees it.
func loadPolicy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	source, compiled := filepath.Join(dir, "policy.conf"), filepath.Join(dir, "policy")
	must(t, os.WriteFile(source, []byte(policy), 0o600))
	must(t, command("checkpolicy", "-M", "-U", "allow", "-o", compiled, source))
	must(t, command("mount", "-t", "selinuxfs", "none", selinuxfs))
	t.Cleanup(func() {
		if err := command("umount", selinuxfs); err != nil {
			t.Error(err)
		}
	})
	text, err := os.ReadFile(compiled)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(selinuxfs, "load"), text, 0))
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
