package moves

import (
	"context"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// set is a StatefulSet with one pod and two volumes.
type set struct {
	name    string
	raw     bool
	classes [2]string
	sizes   [2]string
	types   [2]string // of the file systems
	avoids  string    // a node
}

// sets have volumes of each layout and file system, raw and encrypted ones.
var sets = []set{
	{name: "layouts", classes: [2]string{scenario.FastClass, "drained-striped"}, sizes: [2]string{"128Mi", "128Mi"}, types: [2]string{"ext4", "ext4"}, avoids: far},
	{name: "mirrored", classes: [2]string{"drained-raid1", scenario.ThinClass}, sizes: [2]string{"128Mi", "192Mi"}, types: [2]string{"ext4", "ext4"}, avoids: far},
	{name: "files", classes: [2]string{"fast-xfs", "thin-btrfs"}, sizes: [2]string{"320Mi", "256Mi"}, types: [2]string{"xfs", "btrfs"}, avoids: "none"},
	{name: "raw", raw: true, classes: [2]string{scenario.FastClass, scenario.ThinClass}, sizes: [2]string{"64Mi", "128Mi"}, avoids: "none"},
	{name: "secret", classes: [2]string{"drained-encrypted", "drained-encrypted-thin"}, sizes: [2]string{"128Mi", "192Mi"}, types: [2]string{"ext4", "ext4"}, avoids: there},
}

func (s set) pod() string       { return s.name + "-0" }
func (s set) claims() [2]string { return [2]string{"one-" + s.pod(), "two-" + s.pod()} }

// apply creates the StatefulSet, with Secrets for classes with encryption.
func (s set) apply(ctx context.Context, env *scenario.Environment) error {
	for i, class := range s.classes {
		if strings.Contains(class, "encrypted") {
			if err := env.ReplaceKeySecret(ctx, s.claims()[i], map[string]string{"key": "the key of " + s.claims()[i] + ", a long one"}); err != nil {
				return err
			}
		}
	}
	kind, key, folder, mode := "volumeMounts", "mountPath", "/data", "Filesystem"
	if s.raw {
		kind, key, folder, mode = "volumeDevices", "devicePath", "/dev", "Block"
	}
	return env.ApplyWith(ctx, "drain-set.yaml", "NAME", s.name, "KIND", kind, "KEY", key, "FOLDER", folder, "MODE", mode, "AVOIDED", s.avoids,
		"CLASS-ONE", s.classes[0], "CLASS-TWO", s.classes[1], "SIZE-ONE", s.sizes[0], "SIZE-TWO", s.sizes[1])
}

// exec runs a command in the pod for each of both volumes: $v is its name, $at the file with the content.
func (s set) exec(ctx context.Context, env *scenario.Environment, command string) (string, error) {
	at := "/data/$v/content"
	if s.raw {
		at = "/dev/$v"
	}
	return env.ExecInPod(ctx, s.pod(), "sh", "-ec", "for v in one two; do at="+at+"; "+command+"; done")
}

const (
	writeContent  = "dd if=/dev/urandom of=$at bs=1M count=32 conv=fsync 2>/dev/null"
	changeContent = "dd if=/dev/urandom of=$at bs=1M count=4 seek=8 conv=notrunc,fsync 2>/dev/null"
	writeFiles    = "mkdir -p /data/$v/a/b; seq 1 20000 >/data/$v/a/b/seq; ln -s a/b/seq /data/$v/link; sync"
	readContent   = "sha256sum $at"
	readFiles     = "sha256sum /data/$v/link; readlink /data/$v/link; grep -o \" /data/$v [a-z0-9]* \" /proc/mounts"
)

func (s set) write(ctx context.Context, env *scenario.Environment) error {
	command := writeContent
	if !s.raw {
		command += "; " + writeFiles
	}
	_, err := s.exec(ctx, env, command)
	return err
}

// read returns the sums of the content, and the file systems.
func (s set) read(ctx context.Context, env *scenario.Environment) (string, error) {
	command := readContent
	if !s.raw {
		command += "; " + readFiles
	}
	said, err := s.exec(ctx, env, command)
	for i, want := range s.types {
		if mount := fmt.Sprintf(" /data/%s %s ", [2]string{"one", "two"}[i], want); err == nil && !s.raw && !strings.Contains(said+" ", mount) {
			err = fmt.Errorf("pod %s has not mounted%s: %s", s.pod(), mount, said)
		}
	}
	return said, err
}

// allClaims are those of all sets.
func allClaims() (names []string) {
	for _, s := range sets {
		claims := s.claims()
		names = append(names, claims[:]...)
	}
	return names
}
