//go:build reallvm

package reallvm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// CapacityGroup is the name of the random groups of package capacity, whose volumes udev does not see.
const CapacityGroup = "nodelvm-capacity"

// udevRules come after the rules that find device-mapper devices by name (55-dm), and before those that open them.
const udevRules = "/run/udev/rules.d/55-nodelvm-test.rules"

// DisableUdevRules saves a slow node the work of udev: for loop devices its rules run `lvm pvscan` after each write to one, and several
// programs for each device of a volume, which is more than the tests do. It hides the volumes of CapacityGroup from udev.
// With hiding it hides all volumes until the test ends. Neither the driver's lvm nor the lvm of these tests waits for udev.
func DisableUdevRules(t testing.TB, hiding bool) {
	t.Helper()
	hosttest.Must(t, os.MkdirAll(filepath.Dir(udevRules), 0o755))
	if _, err := os.Stat(udevRules); err == nil && !hiding {
		return
	}
	rules := fmt.Sprintf("SUBSYSTEM==\"block\", KERNEL==\"loop*\", ATTR{loop/backing_file}==\"/dev/shm/%s-*\", OPTIONS:=\"nowatch\"\n", Group) +
		fmt.Sprintf("SUBSYSTEM==\"block\", ENV{DM_NAME}==\"%s-*\", ENV{DM_UDEV_RULES_VSN}=\"\", ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}=\"1\"\n",
			strings.ReplaceAll(CapacityGroup, "-", "--"))
	hosttest.Must(t, os.WriteFile(udevRules, []byte(rules), 0o644))
	if hiding {
		for _, pattern := range []string{"*-dm*.rules", "*-lvm*.rules"} {
			hidden, err := filepath.Glob(filepath.Join("/lib/udev/rules.d", pattern))
			hosttest.Must(t, err)
			for _, path := range hidden {
				hiding := filepath.Join(filepath.Dir(udevRules), filepath.Base(path))
				hosttest.Must(t, os.WriteFile(hiding, nil, 0o600))
				t.Cleanup(func() { hosttest.Must(t, os.Remove(hiding)) })
			}
		}
	}
	_ = exec.CommandContext(context.Background(), "udevadm", "control", "--reload").Run() // fails without udev, which is fine
}

// RemoveUdevRules makes udev work as before DisableUdevRules once it reads its rules again.
func RemoveUdevRules() { _ = os.Remove(udevRules) }
