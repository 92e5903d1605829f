//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
)

// job is a test binary that runs in a node: it is compiled from a package with a build tag.
type job struct {
	name     string
	dir, tag string
	pkg      string
	args     []string
	tools    bool // it runs the tools of the driver's image instead of the node's
}

// jobs are the binaries, the longest first. Each node takes the next one when it has ended the one before: a node has one
// processor.
var jobs = []job{
	{name: "conformance", dir: "../..", tag: "reallvm", pkg: "./lvm/lvmtest", args: []string{"-test.run", "Real", "-test.skip", capacityTest}},
	{name: "driver", dir: "..", tag: "innode", pkg: "./innode"},
	{name: "capacity", dir: "../..", tag: "reallvm", pkg: "./lvm/lvmtest", args: []string{"-test.run", capacityTest}},
	{name: "filesystems", dir: "../..", tag: "realfs", pkg: "./node"},
	{name: "encryption", dir: "../..", tag: "realfs", pkg: "./node/luks", args: []string{"-test.run", encryptionTests}},
	{name: "imagetools", dir: "../..", tag: "realfs", pkg: "./node", tools: true,
		args: []string{"-test.run", "OnDisk|MkfsThatIsKilled|NoMounted|StageToUnstageTwice|ForeignContent|MkfsOptionsOfTheClass"}},
	{name: "imageencryption", dir: "../..", tag: "realfs", pkg: "./node/luks", tools: true, args: []string{"-test.run", encryptionTests}},
}

// encryptionTests are those that need cryptsetup and dm-crypt; the others need files of their package, and run without a node.
const encryptionTests = "^TestReal"

// capacityTest takes a third of the time of its package, and so runs apart.
const capacityTest = "^TestCapacity_RealLVM$"

// TestLVM compiles the tests that need real LVM on real device-mapper, and runs each binary in a node without Kubernetes.
func TestLVM(t *testing.T) {
	l, err := lab.Open(lvmLab())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := l.Up(t.Context(), lab.UpOptions{Nodes: 2, Progress: os.Stdout}); err != nil {
		t.Fatal(err)
	}
	share := l.Share()
	compile(t, "../..", "build", "-o", share+"/nodelvm", "./cmd/nodelvm")
	compile(t, "..", "build", "-o", labCommand(l), "./cmd/lab")
	unpackTools(t, l)
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		compile(t, j.dir, "test", "-c", "-tags", j.tag, "-o", filepath.Join(share, j.name+".test"), j.pkg)
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

func lvmLab() string { return filepath.Join(os.TempDir(), "nodelvm-lvm-lab") }

func labCommand(l *lab.Lab) string { return filepath.Join(l.Share(), "lab") }

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	// The lab's programs are compiled with -trimpath too: what both need is compiled once.
	cmd := exec.CommandContext(t.Context(), "go", slices.Insert(args, 1, "-trimpath")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// environment is what a test binary in a node gets: its disks, and what says how much is to be tested.
func environment() []string {
	env := []string{"NODELVM_TEST_DISKS=/dev/ubdb,/dev/ubdc"}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "NODELVM_TEST_") {
			env = append(env, setting)
		}
	}
	return env
}

// run runs the binary in the node. gotestsum prints the result of each test, and the output of those that fail; the events of
// test2json, with all output, are in dist/test. Everything in a node can be tested there: a skipped test is a failure.
func (j job) run(t *testing.T, l *lab.Lab, node string) {
	events, err := filepath.Abs("../../dist/test/lvm-" + j.name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(events), 0o755); err != nil {
		t.Fatal(err)
	}
	argv := []string{"tool", "gotestsum", "--format", "testname", "--jsonfile", events, "--raw-command", "--",
		"go", "tool", "test2json", "-t", "-p", node + "/" + j.name, labCommand(l), "--dir", lvmLab(), "exec", node, "env"}
	argv = append(argv, environment()...)
	if j.tools {
		argv = append(argv, "PATH="+toolsInNode+":/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG="+imageInNode+"/etc/mke2fs.conf")
	}
	argv = append(argv, "/mnt/lab/"+j.name+".test", "-test.v=test2json", "-test.timeout="+patience())
	cmd := exec.CommandContext(t.Context(), "go", append(argv, j.args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v; all that it printed is in %s", j.name, err, events)
	}
	text, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	if !testPassed.Match(text) {
		t.Errorf("no test of %s passed", j.name)
	}
	for _, skipped := range testSkipped.FindAllSubmatch(text, -1) {
		t.Errorf("%s was skipped", skipped[1])
	}
}

// Events of test2json; those of a whole package name no test.
var (
	testPassed  = regexp.MustCompile(`"Action":"pass",[^\n]*"Test":`)
	testSkipped = regexp.MustCompile(`"Action":"skip",[^\n]*"Test":"([^"]*)"`)
)

// patience is how long a binary may take: `make test-long` gives more.
func patience() string {
	if limit := os.Getenv("NODELVM_TEST_PATIENCE"); limit != "" {
		return limit
	}
	return "90m"
}
