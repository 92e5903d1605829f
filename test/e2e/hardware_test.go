//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/lab"
)

// hardwareTests selects the tests of ./innode that need a node on emulated hardware.
const hardwareTests = "^TestHardware"

// hardwareSlowness is how many times slower than user-mode Linux a node is whose processors are emulated.
const hardwareSlowness = 6

// sectorsOf4096 are the serial numbers of the node's disks with logical blocks of 4096 bytes. Two of the groups of ./innode are on one disk
// each, the third one is on the other two.
var sectorsOf4096 = []string{"nvme-4k-a", "nvme-4k-b", "nvme-4k-c", "scsi-4k-a"}

// hardwareJobs are the tests on emulated hardware.
var hardwareJobs = []job{
	{name: "hardware-cases", of: "TestHardware", dir: "..", tag: "innode", pkg: "./innode", tests: []string{hardwareTests}},
}

// TestHardware runs tests on real LVM in a node on emulated hardware: with two processors, NVMe and SCSI disks that are pulled and return, disks
// with sectors of 4096 bytes, and Debian's stock kernel. It prints a table of what the cases showed, which is also in
// dist/test/hardware.md. NODELVM_TEST_JOB and NODELVM_TEST_RUN select one job and its tests.
func TestHardware(t *testing.T) {
	l := raise(t, "hardware", lab.UpOptions{Nodes: 1, Hardware: true})
	address, err := l.ServeDisks(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NODELVM_TEST_DISK_SERVICE", address)
	slowness, err := strconv.ParseFloat(os.Getenv(wait.Variable), 64)
	if err != nil || slowness < 1 {
		slowness = 1
	}
	t.Setenv(wait.Variable, fmt.Sprintf("%.2f", slowness*hardwareSlowness))
	selected := onlyJob(hardwareJobs)
	for i := range selected {
		selected[i].disks = disksBySerial(t, l, sectorsOf4096)
	}
	t.Run("jobs", func(t *testing.T) { runJobs(t, l, selected) })
	printHardwareTable(t, selected)
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

// hardwareCase is a row of the table, as a test in the node prints it.
type hardwareCase struct{ Case, Volume, Capacity, Condition, Message string }

// printHardwareTable prints what the cases showed, and writes it to dist/test/hardware.md.
func printHardwareTable(t *testing.T, jobs []job) {
	t.Helper()
	var cases []hardwareCase
	for _, j := range jobs {
		events, err := os.ReadFile("../../dist/test/" + j.results() + ".json")
		if err != nil {
			t.Error(err)
			continue
		}
		cases = append(cases, casesIn(t, events)...)
	}
	if len(cases) == 0 {
		return // none of the selected tests prints one
	}
	table := hardwareTable(cases)
	fmt.Print("\n", table)
	if err := os.WriteFile(filepath.Join("../../dist/test", "hardware.md"), []byte(table), 0o644); err != nil { //nolint:gosec // a report
		t.Error(err)
	}
}

// casesIn returns the rows that tests have printed, by test2json's events.
func casesIn(t *testing.T, events []byte) (cases []hardwareCase) {
	t.Helper()
	for line := range bytes.Lines(events) {
		var event struct{ Output string }
		if err := json.Unmarshal(line, &event); err != nil {
			t.Error(err)
			continue
		}
		_, text, is := strings.Cut(event.Output, "hardware case: ")
		if !is {
			continue
		}
		var c hardwareCase
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Errorf("%v: %s", err, text)
			continue
		}
		cases = append(cases, c)
	}
	return cases
}

func hardwareTable(cases []hardwareCase) string {
	slices.SortFunc(cases, func(a, b hardwareCase) int { return strings.Compare(a.Case, b.Case) })
	var b strings.Builder
	b.WriteString("| case | volume | capacity | condition | message |\n|---|---|---|---|---|\n")
	for _, c := range cases {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Case, c.Volume, c.Capacity, c.Condition, c.Message)
	}
	return b.String()
}
