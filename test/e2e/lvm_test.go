//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/test/lab"
)

// job is a test binary that runs in a node, compiled from a package with a build tag.
type job struct {
	name     string
	dir, tag string
	pkg      string
	tests    []string // Expressions, each of which must select a test. None: all tests.
	gate     []string // The same for make test, which runs a sample. None: make test does not run this job.
	skip     string   // An expression of tests that do not run.
	tools    bool     // Run the tools of the driver's image instead of the node's.
	long     bool     // Only in make test-long.
	of       string   // The test of this package that runs it; "": TestLVM.
	disks    []string // The node's blank disks; none: those of a node of user-mode Linux.
}

// jobs are the binaries, the longest first. Each node runs one at a time, because it has one processor.
var jobs = []job{
	{name: "driver", dir: "..", tag: "innode", pkg: "./innode", skip: hardwareTests, gate: []string{
		"^TestSanity$/^(linear|raid1|thin),_mount$", "^TestRepeated", "^TestLVMProcesses",
		"^TestGroupSnapshotsAreConsistent$/^(raw|encrypted_ext4)$",
		"^TestSnapshotOfMounted", "^TestReadOnlyRawDevice$", "^TestEncryptedFileSystem$",
		"^TestDeletedEncryptedVolumeIsErased$", "^TestLimitedSnapshot$/^thin$",
		"^TestSELinuxMount$/^ext4$",
	}},
	onRealLVM("dataleak", "^TestDataLeak", "^TestThinDataLeak", "^TestRawDataLeak_RealLVM$/^(a_class_that_is_not_wiped|an_admin's_lvremove)$"),
	onRealLVM("capacity", "Real"),
	onRealLVM("conformance", "Real"),
	{name: "imageencryption", dir: "../..", tag: "realfs", pkg: "./node/luks", tools: true, tests: encryptionTests,
		gate: []string{"^TestRealBlock$", "^TestRealRefusals$", "^TestRealFormatStoppedAtEachStep$"}},
	{name: "encryption", dir: "../..", tag: "realfs", pkg: "./node/luks", long: true, tests: encryptionTests}, // the node's cryptsetup; the driver runs the image's
	onRealLVM("crash", "^TestCrash_", "^TestKill_"),
	{name: "filesystems", dir: "../..", tag: "realfs", pkg: "./node", skip: killedMkfs + "|^TestDocumentedKeys$|^TestKeyThatIsNotText$"}, // these read a page
	onRealLVM("identity", "^TestTenantGroup", "^TestNodeTag"),
	onRealLVM("diskfailure", "^TestDiskLost", "^TestMissingPV", "^TestUnresponsiveDisk", "^TestRemovedDiskIsBack_RealLVM$", "^TestRemovedPath_RealLVM$"),
	{name: "imagetools", dir: "../..", tag: "realfs", pkg: "./node", tools: true, tests: append(imageTests, killedMkfs),
		gate: append(imageTests, killedMkfs+"/^ext4$", "^TestCorruptFileSystems$", "^TestGrowth$", "^TestTrim$", "^TestCopiesBeside", "^TestOpenDevice")},
	onRealLVM("thinpool", "Real"),
	onRealLVM("moving", "^TestNeverMounted_RealLVM$"),
	onRealLVM("prepare", "^TestPrepare_"),
	onRealLVM("operations", "Real"),
}

// imageTests are the tests of file systems that run with the image's programs, too: the driver runs these.
var imageTests = []string{"OnDisk$", "^TestNoMounted", "StageToUnstageTwice$", "^TestForeignContent", "^TestMkfsOptionsOfTheClass$", "^TestDamagedLUKS"}

// encryptionTests selects the tests that need cryptsetup and dm-crypt. The others need files of their package, and run without a
// node.
var encryptionTests = []string{"^TestReal"}

// killedMkfs takes minutes, so it runs with the image's mkfs alone, which the driver runs.
const killedMkfs = "^TestKilledMkfs"

// onRealLVM is the job of the tests of a package below lvm/lvmtest that need real LVM; gate selects some of them.
func onRealLVM(name string, gate ...string) job {
	return job{name: name, dir: "../..", tag: "reallvm", pkg: lvmTests + name, tests: []string{"Real"}, gate: gate}
}

const lvmTests = "./lvm/lvmtest/"

// checkEachPackageHasJob fails for a package below lvm/lvmtest with tests that need real LVM, and without a job.
func checkEachPackageHasJob(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../../lvm/lvmtest/*/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests below lvm/lvmtest: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		pkg := lvmTests + filepath.Base(filepath.Dir(file))
		if realTest.Match(text) && !slices.ContainsFunc(jobs, func(j job) bool { return j.pkg == pkg }) {
			t.Errorf("%s has tests on real LVM, and %s is in no job", file, pkg)
		}
	}
}

// realTest is a test that a job of onRealLVM runs.
var realTest = regexp.MustCompile(`(?m)^func Test\w*Real`)

// TestLVM compiles the tests that need real LVM on real device-mapper, and runs each binary in a node without Kubernetes.
// NODELVM_TEST_JOB and NODELVM_TEST_RUN select one job and its tests.
func TestLVM(t *testing.T) {
	checkEachPackageHasJob(t)
	selected := slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return j.long && os.Getenv("NODELVM_TEST_ENCRYPTED") != "all" })
	if os.Getenv("NODELVM_TEST_JOB") != "" {
		selected = onlyJob(jobs)
	}
	runJobs(t, raiseNodes(t, "lvm", max(1, min(2, len(selected)))), selected)
}

// onlyJob returns the job that NODELVM_TEST_JOB names, with the tests of NODELVM_TEST_RUN; without that variable, all.
func onlyJob(jobs []job) []job {
	only := os.Getenv("NODELVM_TEST_JOB")
	selected := slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return only != "" && j.name != only })
	if run := os.Getenv("NODELVM_TEST_RUN"); run != "" && len(selected) == 1 {
		selected[0].tests = []string{run}
	}
	return selected
}

// casesOfGate is the number of random groups in TestNodes.
const casesOfGate = 10

// TestNodes runs the tests of each job that make test has, see job.gate, and then cuts the power of a node.
func TestNodes(t *testing.T) {
	if os.Getenv("NODELVM_TEST_CASES") == "" {
		t.Setenv("NODELVM_TEST_CASES", strconv.Itoa(casesOfGate))
	}
	l := raiseNodes(t, "nodes", 2)
	if t.Run("jobs", func(t *testing.T) { runJobs(t, l, gateJobs()) }) {
		blankDisks(t, l, "node-1", umlDisks...)
		t.Run("power", func(t *testing.T) {
			cutPowerOf(t, l, "reallvm", "./lvm/lvmtest/power", number(t, "NODELVM_TEST_CUTS", 2))
		})
	}
}

// gateJobs returns the jobs of make test, with the tests that it runs.
func gateJobs() (selected []job) {
	for _, j := range jobs {
		if len(j.gate) > 0 {
			j.tests = j.gate
			selected = append(selected, j)
		}
	}
	return selected
}

// runJobs runs jobs in the nodes of a lab.
func runJobs(t *testing.T, l *lab.Lab, jobs []job) {
	t.Helper()
	if len(jobs) == 0 {
		t.Fatal("no job is selected")
	}
	share := l.Share()
	compileFor(t, l.Arch(), "../..", "build", "-o", share+"/nodelvm", "./cmd/nodelvm")
	compile(t, "..", "build", "-o", labCommand(l), "./cmd/lab")
	unpackTools(t, l, unpackImage(t, l))
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		compileFor(t, l.Arch(), j.dir, "test", "-c", "-tags", j.tag, "-o", filepath.Join(share, j.name+".test"), j.pkg)
		queue <- j
	}
	close(queue)
	for _, node := range l.NodeNames() {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			for j := range queue {
				t.Run(j.name, func(t *testing.T) { j.run(t, l, node) })
			}
		})
	}
}

// raiseNodes starts a lab of nodes without Kubernetes, and stops it when the test ends.
func raiseNodes(t *testing.T, name string, nodes int) *lab.Lab {
	t.Helper()
	return raise(t, name, lab.UpOptions{Nodes: nodes})
}

func raise(t *testing.T, name string, options lab.UpOptions) *lab.Lab {
	t.Helper()
	l, down, err := lab.OpenPrivate(name)
	must(t, err)
	t.Cleanup(func() {
		if err := down(); err != nil {
			t.Error(err)
		}
	})
	options.Progress = os.Stdout
	must(t, l.Up(t.Context(), options))
	return l
}

func labCommand(l *lab.Lab) string { return filepath.Join(l.Share(), "lab") }

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	compileFor(t, runtime.GOARCH, dir, args...)
}

func compileFor(t *testing.T, arch, dir string, args ...string) {
	t.Helper()
	// With -trimpath, as for the lab's programs, Go's build cache serves both.
	cmd := exec.CommandContext(t.Context(), "go", slices.Insert(args, 1, "-trimpath")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// umlDisks are the blank disks of a node of user-mode Linux.
var umlDisks = []string{"/dev/ubdb", "/dev/ubdc"}

// blank returns the blank disks of the job's node.
func (j job) blank() []string {
	if len(j.disks) > 0 {
		return j.disks
	}
	return umlDisks
}

// environment returns the environment of a test binary in a node: its disks, and this process's NODELVM_TEST_ variables.
func (j job) environment() []string {
	env := []string{"NODELVM_TEST_DISKS=" + strings.Join(j.blank(), ",")}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "NODELVM_TEST_") {
			env = append(env, setting)
		}
	}
	return env
}

// blankDisks zeroes the start of the node's disks, where an earlier job may have left a label: a driver creates no volume group while a
// disk has a damaged one.
func blankDisks(t *testing.T, l *lab.Lab, node string, disks ...string) {
	t.Helper()
	runOnNode(t, l, node, nil, append([]string{"sh", "-ec", `for disk; do dd if=/dev/zero of="$disk" bs=1M count=4 oflag=direct; done`, "sh"}, disks...)...)
}

// runOnNode runs a command that must succeed, and returns what it printed on both streams.
func runOnNode(t *testing.T, l *lab.Lab, node string, stdin io.Reader, argv ...string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := l.Exec(t.Context(), node, stdin, &out, &out, argv...)
	if err != nil || code != 0 {
		t.Fatalf("%s: %s: exit code %d, %v\n%s", node, strings.Join(argv, " "), code, err, out.String())
	}
	return out.String()
}

// run runs the binary in the node. gotestsum prints the result of each test, and the output of failed ones; test2json's events,
// with all output, are in dist/test. No test has a reason to skip itself in a node: run reports a skipped test as a failure.
func (j job) run(t *testing.T, l *lab.Lab, node string) {
	blankDisks(t, l, node, j.blank()...)
	results, err := filepath.Abs("../../dist/test/" + j.results())
	must(t, err)
	events := results + ".json"
	must(t, os.MkdirAll(filepath.Dir(events), 0o755))
	suites := ""
	if names := os.Getenv(lab.EnvSuites); names != "" {
		suites = lab.EnvSuites + "=" + names + " "
	}
	again := fmt.Sprintf("(cd test && "+suites+"NODELVM_TEST_JOB=%s NODELVM_TEST_RUN=RUN go test -tags e2e -count=1 -timeout 2h -v -run '^%s$' ./e2e)\n", j.name, cmp.Or(j.of, "TestLVM"))
	if err := os.WriteFile(results+".repeat", []byte(again), 0o644); err != nil { //nolint:gosec // a report
		t.Fatal(err)
	}
	argv := []string{"tool", "gotestsum", "--format", "testname", "--jsonfile", events, "--raw-command", "--",
		"go", "tool", "test2json", "-t", "-p", node + "/" + j.name, labCommand(l), "--dir", filepath.Dir(l.Share()), "exec", node, "env"}
	argv = append(argv, j.environment()...)
	if j.tools {
		argv = append(argv, "PATH="+toolsInNode+":/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG="+imageInNode+"/etc/mke2fs.conf")
	}
	argv = append(argv, "/mnt/lab/"+j.name+".test", "-test.v=test2json", "-test.timeout="+patience(),
		"-test.run="+strings.Join(j.tests, "|"), "-test.skip="+j.skip)
	cmd := exec.CommandContext(t.Context(), "go", argv...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v; all that it printed is in %s", j.name, err, events)
	}
	text, err := os.ReadFile(events)
	must(t, err)
	j.checkSelection(t, text)
	for _, skipped := range testSkipped.FindAllSubmatch(text, -1) {
		t.Errorf("%s was skipped", skipped[1])
	}
}

// results is the name of the files in dist/test with the job's results.
func (j job) results() string { return cmp.Or(os.Getenv("NODELVM_TEST_PART"), "lvm") + "-" + j.name }

// checkSelection fails for each expression of j.tests that matches no test that passed, such as the old name of a test.
func (j job) checkSelection(t *testing.T, events []byte) {
	t.Helper()
	for _, test := range append(j.tests, "") {
		test, _, _ = strings.Cut(test, "/") // the rest selects subtests
		expression := regexp.MustCompile(test)
		if !slices.ContainsFunc(testPassed.FindAllSubmatch(events, -1), func(passed [][]byte) bool { return expression.Match(passed[1]) }) {
			t.Errorf("no test of %s passed that matches %q", j.name, test)
		}
	}
}

// Events of test2json about tests; events about a whole package name no test.
var (
	testPassed  = regexp.MustCompile(`"Action":"pass",[^\n]*"Test":"([^"/]*)"`)
	testSkipped = regexp.MustCompile(`"Action":"skip",[^\n]*"Test":"([^"]*)"`)
)

// patience returns the time limit of a binary; `make test-long` sets a longer one.
func patience() string {
	if limit := os.Getenv("NODELVM_TEST_PATIENCE"); limit != "" {
		return limit
	}
	return "90m"
}

var must = check.Must
