//go:build innode

package innode

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Tests of disks that only a node on emulated hardware has begin with TestHardware. `make test-hardware` runs them.

// diskService is the variable with the address at which the lab takes "pull DISK", "return DISK", "fail DISK" and "repair DISK". DISK is a
// serial number.
const diskService = "NODELVM_TEST_DISK_SERVICE"

// act lets the lab act on one of the node's disks.
func act(t *testing.T, action, serial string) {
	t.Helper()
	must(t, tryAct(action, serial))
}

func tryAct(action, serial string) error {
	var d net.Dialer
	conn, err := d.DialContext(background, "tcp", os.Getenv(diskService))
	if err != nil {
		return fmt.Errorf("the lab's disk service (%s): %w", diskService, err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintln(conn, action, serial); err != nil {
		return err
	}
	answer := bufio.NewScanner(conn)
	if !answer.Scan() || answer.Text() != "done" {
		return errors.Join(fmt.Errorf("%s %s: %s", action, serial, answer.Text()), answer.Err())
	}
	return nil
}

// diskOf returns the device below /dev of the disk with a serial number; "" if the node has none.
func diskOf(t *testing.T, serial string) string {
	t.Helper()
	return strings.Join(disksOf(t, serial), " and ")
}

// disksOf returns the devices of all paths to a disk.
func disksOf(t *testing.T, serial string) (paths []string) {
	t.Helper()
	out, err := exec.CommandContext(background, "lsblk", "--nodeps", "--noheadings", "--paths", "--raw", "--output", "NAME,SERIAL").Output() // clean-ups call it, too
	must(t, err)
	for line := range strings.Lines(string(out)) {
		if name, number, _ := strings.Cut(strings.TrimSpace(line), " "); number == serial {
			paths = append(paths, name)
		}
	}
	return paths
}

// serialOf returns the first of these serial numbers whose disk is in a list of devices.
func serialOf(t *testing.T, serials []string, devices string) string {
	t.Helper()
	for _, serial := range serials {
		if slices.Contains(strings.Fields(devices), diskOf(t, serial)) {
			return serial
		}
	}
	t.Fatalf("none of the disks %q is in %q", serials, devices)
	return ""
}

// pull takes a disk out. The kernel, and so the driver, loses its device, whoever uses it. It is back when the test ends.
func pull(t *testing.T, serial string) {
	t.Helper()
	act(t, "pull", serial)
	t.Cleanup(func() {
		if diskOf(t, serial) == "" {
			plug(t, serial)
		}
	})
	eventually(t, time.Minute, "the disk "+serial+" is gone", func() bool { return diskOf(t, serial) == "" })
}

// plug puts a disk back, and returns the name that it has now.
func plug(t *testing.T, serial string) string {
	t.Helper()
	act(t, "return", serial)
	var name string
	eventually(t, time.Minute, "the disk "+serial+" is back", func() bool {
		name = diskOf(t, serial)
		return name != ""
	})
	return name
}

// hardwareGroup creates a volume group on the disks with these serial numbers. When the test ends, they are blank.
func hardwareGroup(t *testing.T, name string, serials ...string) {
	t.Helper()
	disks := make([]string, len(serials))
	for i, serial := range serials {
		if disks[i] = diskOf(t, serial); disks[i] == "" {
			t.Fatalf("the node has no disk %s: these tests need a node on emulated hardware", serial)
		}
	}
	t.Cleanup(func() {
		for _, serial := range serials {
			if err := blankStart(diskOf(t, serial)); err != nil {
				t.Error(err)
			}
		}
	})
	groupOn(t, name, disks...)
}

// blankStart zeroes the first bytes of a disk, with LVM's label. After wipefs the driver would call the label damaged.
func blankStart(disk string) error {
	return command("dd", "if=/dev/zero", "of="+disk, "bs=1M", "count=4", "oflag=direct", "status=none")
}

// groupOn creates a volume group on devices. When the test ends, it is gone.
func groupOn(t *testing.T, name string, devices ...string) {
	t.Helper()
	must(t, command("vgcreate", append([]string{"-qq", "-y", "-s", "4m", "--config", "devices/allow_mixed_block_sizes=1", name}, devices...)...))
	t.Cleanup(func() {
		if err := command("vgremove", "-qq", "-f", "-y", name); err != nil {
			t.Error(err)
		}
	})
	renewDriver(t) // it records its disks at once, and then each minute
	eventually(t, time.Minute, "the driver has the group "+name+" and has recorded its disks", func() bool {
		return slices.ContainsFunc(look(t).Groups, func(g report.Group) bool {
			return string(g.Name) == name && !slices.ContainsFunc(g.PVs, func(pv report.PV) bool { return pv.Disk == nil })
		})
	})
}

// onDisks returns a request for a volume of a class on a group.
func onDisks(name, group string, size int64, parameters ...string) *csi.CreateVolumeRequest {
	r := createRequest(name, size)
	r.Parameters = map[string]string{"volumeGroup": group, "wipe": "none"}
	for i := 0; i < len(parameters); i += 2 {
		r.Parameters[parameters[i]] = parameters[i+1]
	}
	if r.Parameters["layout"] == "thin" {
		delete(r.Parameters, "wipe") // the driver refuses it
	}
	return r
}

// capacity asks the driver for the capacity of a class.
func (c client) capacity(t *testing.T, parameters map[string]string) int64 {
	t.Helper()
	reply, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: parameters})
	must(t, err)
	return reply.GetAvailableCapacity()
}

// conditionOf returns the condition of this type of a volume, or of its group if v is nil.
func conditionOf(t *testing.T, kind lvm.ConditionType, group string, v *csi.Volume) (report.Condition, bool) {
	t.Helper()
	for _, c := range look(t).Conditions {
		if c.Type == string(kind) && string(c.Group) == group && c.Volume == v.GetVolumeId() {
			return c, true
		}
	}
	return report.Condition{}, false
}

// awaitCondition waits for a condition, and returns its message.
func awaitCondition(t *testing.T, kind lvm.ConditionType, group string, v *csi.Volume) string {
	t.Helper()
	var found report.Condition
	eventually(t, time.Minute, fmt.Sprintf("the condition %s of %s%s", kind, group, v.GetVolumeId()), func() (is bool) {
		found, is = conditionOf(t, kind, group, v)
		return is
	})
	return found.Text
}

// awaitRemedy waits for a condition whose message has these words, and returns the message.
func awaitRemedy(t *testing.T, kind lvm.ConditionType, group string, v *csi.Volume, words string) (message string) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("the condition %s of %s that says %q", kind, v.GetVolumeId(), words), func() bool {
		message = awaitCondition(t, kind, group, v)
		return strings.Contains(message, words)
	})
	return message
}

// awaitNoConditions waits until the driver reports no condition of a group.
func awaitNoConditions(t *testing.T, group string) {
	t.Helper()
	var left []report.Condition
	defer func() {
		if t.Failed() {
			t.Logf("the conditions that are left: %+v", left)
		}
	}()
	eventually(t, 2*time.Minute, "no condition of "+group, func() bool {
		left = slices.DeleteFunc(look(t).Conditions, func(c report.Condition) bool { return string(c.Group) != group })
		return len(left) == 0
	})
}

// row is a line of the table of hardware cases: what a test has seen. The lab compares it with the table of docs/compatibility.md, see
// test/hardwaretable.
type row struct {
	Test, Case, Pod, Capacity, Condition, Message string
}

// rowMark begins the line of a row in a test's output.
const rowMark = "hardware case: "

// print prints the row, with words in the place of devices' names, which differ from run to run.
func (r row) print(t *testing.T, words map[string]string) {
	t.Helper()
	if t.Failed() {
		return
	}
	r.Test = t.Name()
	for device, word := range words {
		r.Message = regexp.MustCompile(`\b`+regexp.QuoteMeta(filepath.Base(device))+`\b`).ReplaceAllLiteralString(r.Message, word)
	}
	text, err := json.Marshal(r)
	must(t, err)
	t.Log(rowMark + string(text))
}

// What stands for the names of a disk in a row.
const (
	formerName  = "OLD"
	presentName = "NEW"
)

// writes proves that a pod can write through to its disks: it makes a file and flushes it.
func writes(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// readsDisk reports whether the first sectors of a volume can be read from its disks.
func readsDisk(t *testing.T, device string) error {
	t.Helper()
	return command("dd", "if="+device, "of=/dev/null", "bs=64k", "count=1", "iflag=direct", "status=none")
}

// sourceOf returns the device of the file system at a path.
func sourceOf(t *testing.T, path string) string {
	t.Helper()
	return output(t, "findmnt", "--noheadings", "--output", "SOURCE", path)
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", bytes/mebibyte) }

// restart ends a volume's pod and starts the next one, with the same paths.
func (o opened) restart(t *testing.T, secret map[string]string) error {
	t.Helper()
	o.unmount(t, o.v, o.staging, o.target)
	if err := o.stage(t, secret); err != nil {
		return err
	}
	_, err := o.NodePublishVolume(t.Context(), publishRequest(o.v, o.staging, o.target, o.capability))
	return err
}

// file is a file of a pod on its volume.
func (o opened) file(name string) string { return filepath.Join(o.target, name) }
