//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/hardwaretable"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/hardware"
)

// hardwareTests selects the tests of ./innode that need a node on emulated hardware.
const hardwareTests = "^TestHardware"

// hardwareSlowness is how many times slower than user-mode Linux a node is whose processors are emulated.
const hardwareSlowness = 6

// driverDisks are the serial numbers of the disks of the groups that ./innode always has. The tests use the others.
var driverDisks = []string{"scsi-4k-a", "scsi-4k-b"}

// hardwareJobs are the tests on emulated hardware.
var hardwareJobs = []job{
	{name: "hardware-cases", of: "TestHardware", dir: "..", tag: "innode", pkg: "./innode", tests: []string{hardwareTests}},
}

// TestHardware runs tests on real LVM in a node on emulated hardware: with two processors, NVMe, SCSI and SATA disks that are pulled, return
// or fail, disks with sectors of 4096 bytes, and Debian's stock kernel. The table of docs/compatibility.md has what the cases show.
// NODELVM_TEST_JOB and NODELVM_TEST_RUN select one job and its tests.
func TestHardware(t *testing.T) {
	l := raise(t, "hardware", lab.UpOptions{Nodes: 1, Hardware: true})
	address, err := l.ServeDisks(t.Context(), "node-1")
	must(t, err)
	t.Setenv("NODELVM_TEST_DISK_SERVICE", address)
	slowDown(t)
	selected := onlyJob(hardwareJobs)
	for i := range selected {
		selected[i].disks = disksBySerial(t, l, driverDisks)
	}
	t.Run("jobs", func(t *testing.T) { runJobs(t, l, selected) })
	checkHardwareTable(t, selected)
}

// TestHardwareKubelet runs PostgreSQL on a cluster's node on emulated hardware, pulls the disks below it, and boots the node with its disks in another
// order.
func TestHardwareKubelet(t *testing.T) {
	slowDown(t)
	l, down, err := lab.OpenPrivate("hw-cluster")
	must(t, err)
	t.Cleanup(func() { must(t, down()) })
	env, err := scenario.RaiseWith(t.Context(), l, lab.UpOptions{Nodes: 1, Hardware: true}, os.Stdout)
	must(t, err)
	playIn(t, env, hardware.Scenarios())
}

// slowDown lets tests wait longer, as their node is slower than one of user-mode Linux.
func slowDown(t *testing.T) {
	t.Helper()
	slowness, err := strconv.ParseFloat(os.Getenv(wait.Variable), 64)
	if err != nil || slowness < 1 {
		slowness = 1
	}
	t.Setenv(wait.Variable, fmt.Sprintf("%.2f", slowness*hardwareSlowness))
}

// disksBySerial returns the devices of node-1 with these serial numbers.
func disksBySerial(t *testing.T, l *lab.Lab, serials []string) (devices []string) {
	t.Helper()
	bySerial := map[string]string{}
	for line := range strings.Lines(runOnNode(t, l, "node-1", nil, "lsblk", "--nodeps", "--noheadings", "--paths", "--raw", "--output", "NAME,SERIAL")) {
		name, serial, _ := strings.Cut(strings.TrimSpace(line), " ")
		bySerial[serial] = name
	}
	for _, serial := range serials {
		if bySerial[serial] == "" {
			t.Fatalf("the node lacks the disk %s: it has %v", serial, bySerial)
		}
		devices = append(devices, bySerial[serial])
	}
	return devices
}

// checkHardwareTable compares what the cases showed with the table of docs/compatibility.md, and prints it. With UPDATE=1 it writes that table
// first.
func checkHardwareTable(t *testing.T, jobs []job) {
	t.Helper()
	recorded, err := hardwaretable.Read("../" + hardwaretable.File)
	must(t, err)
	var seen []hardwaretable.Row
	for _, j := range jobs {
		events, err := os.ReadFile("../../dist/test/" + j.results() + ".json")
		must(t, err)
		rows, err := hardwaretable.InEvents(events)
		must(t, err)
		seen = append(seen, rows...)
	}
	fmt.Print("\n", hardwaretable.Table(seen))
	whole := os.Getenv("NODELVM_TEST_JOB") == ""
	if os.Getenv("UPDATE") != "" {
		recorded = hardwaretable.Update(recorded, seen, whole && !t.Failed()) // a test that failed has printed none
		writeHardwareTable(t, recorded)
	}
	for _, difference := range hardwaretable.Differences(recorded, seen, whole) {
		t.Errorf("docs/compatibility.md is not what the cases show (UPDATE=1 make test-hardware writes it): %s", difference)
	}
}

// writeHardwareTable records rows, and writes them to the page.
func writeHardwareTable(t *testing.T, rows []hardwaretable.Row) {
	t.Helper()
	const page = "../../docs/compatibility.md"
	text, err := os.ReadFile(page)
	must(t, err)
	after, err := hardwaretable.Replace(string(text), rows)
	must(t, err)
	err = errors.Join(hardwaretable.Write("../"+hardwaretable.File, rows), os.WriteFile(page, []byte(after), 0o644)) //nolint:gosec // a page
	must(t, err)
}
