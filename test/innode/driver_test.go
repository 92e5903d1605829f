//go:build innode

package innode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const (
	binary   = "/mnt/lab/nodelvm"
	nodeName = "node-1"
	work     = "/run/innode"
	endpoint = "unix://" + work + "/csi.sock"
	health   = "127.0.0.1:9808"
	realLVM  = work + "/real/lvm" // its name tells it to take the command as its first argument
	lvmLog   = work + "/lvm.log"
	toolDir  = work + "/bin" // the first in the driver's PATH
	images   = "/var/tmp"    // of the loop devices; on the node's own disk
)

// blank are the node's blank disks.
var blank = strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")

// groups returns the arguments of vgcreate for each volume group. Two blank disks become one group each, both behind the same tag. The
// third group, for what needs two disks, is on two further disks, or on loop devices.
func groups() map[string][]string {
	return map[string][]string{
		"vg-a": {"--addtag", "fast", blank[0]},
		"vg-b": {"--addtag", "fast", blank[1]},
		"vg-r": append(slices.Clone(blank), "/dev/loop30", "/dev/loop31")[2:4],
	}
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if os.Getenv(sanityClass) != "" {
		return m.Run(), nil // a child of TestSanity: all is up
	}
	if len(blank) < 2 {
		return 0, errors.New("set NODELVM_TEST_DISKS to two or four blank disks that the tests may overwrite, such as /dev/ubdb,/dev/ubdc in a lab node")
	}
	if err := os.MkdirAll(filepath.Dir(realLVM), 0o700); err != nil {
		return 0, err
	}
	if err := countLVM(); err != nil {
		return 0, err
	}
	if err := makeGroups(); err != nil {
		return 0, err
	}
	if err := startDriver(); err != nil {
		return 0, err
	}
	code := m.Run()
	if err := stopDriver(); err != nil {
		return 0, err
	}
	if err := removeGroups(); err != nil {
		return 0, err
	}
	// Lazily: udev may be running it because of what was just removed. The script then still writes to the log.
	if err := command("umount", "--lazy", "/usr/sbin/lvm"); err != nil {
		return 0, err
	}
	if err := command("udevadm", "settle"); err != nil {
		return 0, err
	}
	return code, os.RemoveAll(work)
}

func makeGroups() error {
	for name, arguments := range groups() {
		for _, disk := range arguments {
			if !strings.HasPrefix(disk, "/dev/loop") {
				continue
			}
			image := filepath.Join(images, filepath.Base(disk))
			if err := command("truncate", "--size=1G", image); err != nil {
				return err
			}
			if err := command("losetup", disk, image); err != nil {
				return err
			}
		}
		if err := command("vgcreate", append([]string{"-qq", "-s", "4m", name}, arguments...)...); err != nil {
			return err
		}
	}
	return nil
}

func removeGroups() error {
	for name, arguments := range groups() {
		if err := command("vgremove", "-qq", "-f", name); err != nil {
			return err
		}
		for _, disk := range arguments {
			if !strings.HasPrefix(disk, "/dev/loop") {
				continue
			}
			if err := command("losetup", "--detach", disk); err != nil {
				return err
			}
			if err := os.Remove(filepath.Join(images, filepath.Base(disk))); err != nil {
				return err
			}
		}
	}
	return nil
}

// countLVM puts a script in front of the lvm binary that writes one line for each process that is started: whose child it is,
// and its command line.
func countLVM() error {
	if err := command("cp", "/usr/sbin/lvm", realLVM); err != nil {
		return err
	}
	script := "#!/bin/bash\necho \"$PPID $(basename \"$0\") $*\" >> " + lvmLog + "\nexec -a \"$0\" " + realLVM + " \"$@\"\n"
	wrapper := filepath.Join(work, "lvm.wrapper")
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		return err
	}
	return errors.Join(countTools(), command("mount", "--bind", wrapper, "/usr/sbin/lvm"))
}

// tools are the other programs that the driver can start.
var tools = []string{"blkid", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fsck.ext4", "e2fsck", "resize2fs", "xfs_growfs", "xfs_db", "btrfs", "mount", "umount", "modprobe", "cryptsetup"}

// countTools does the same with scripts that the driver finds first.
func countTools() error {
	if err := os.MkdirAll(toolDir, 0o700); err != nil {
		return err
	}
	for _, name := range tools {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		script := "#!/bin/bash\necho \"$PPID " + name + " $*\" >> " + lvmLog + "\nexec " + path + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(toolDir, name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// The driver that runs; stopDriver demands a clean exit.
var (
	driverPID   int
	stopDriver  func() error
	driverFlags []string // further ones of the next driver
)

// startDriver runs the shipped binary as any CO would.
func startDriver() error {
	log, err := os.OpenFile("/mnt/lab/innode-driver.log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it has its own
	cmd := exec.CommandContext(context.Background(), binary, append([]string{"serve", "--standalone", "--cluster-id=innode", "--node-name=" + nodeName,
		"--kubelet-registration=false", "--endpoint=" + endpoint, "--http-endpoint=" + health, "--log-level=debug", "--log-format=console", "--group-snapshots"}, driverFlags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+toolDir+":"+os.Getenv("PATH"))
	if err := cmd.Start(); err != nil {
		return err
	}
	driverPID = cmd.Process.Pid
	stopDriver = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return err
		}
		return cmd.Wait()
	}
	return waitReady()
}

// renewDriver puts a driver that has just started in the place of the one that runs.
func renewDriver(t *testing.T) {
	t.Helper()
	must(t, stopDriver())
	must(t, startDriver())
}

func waitReady() error {
	var last error
	for deadline := time.Now().Add(wait.Limit(time.Minute)); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		answer, err := http.Get("http://" + health + "/readyz") //nolint:noctx // bounded by the loop
		if err != nil {
			last = err
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		last = fmt.Errorf("readyz answers %s", answer.Status)
	}
	return fmt.Errorf("the driver is not ready in time: %w", last)
}

type client struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient
	csi.GroupControllerClient
}

func connect(t *testing.T) client {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return client{csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewNodeClient(conn), csi.NewGroupControllerClient(conn)}
}

func command(name string, args ...string) error {
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// seqnos is LVM's own count of the commits to both groups: equal before and after means that nothing was changed.
func seqnos(t *testing.T) string {
	t.Helper()
	return output(t, realLVM, "vgs", "--noheadings", "-o", "vg_name,vg_seqno", "--sort", "vg_name")
}

// volumes lists the logical volumes as LVM itself sees them, but for thin pools (lv_attr "t"), which stay for the next
// volume.
func volumes(t *testing.T) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(output(t, realLVM, "lvs", "--noheadings", "-o", "lv_name,lv_attr")) {
		if name, attr, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(strings.TrimSpace(attr), "t") {
			names = append(names, name)
		}
	}
	return names
}

// eventually fails the test unless ok becomes true in time.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	wait.For(t, limit, what, ok)
}
