//go:build e2e

package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// nodeJobs are the binaries by node: each node is pinned to a separate core, so the lists run in parallel. They
// take about the same time: csi-sanity alone five minutes.
var nodeJobs = map[string][]job{
	"node-1": {
		{name: "conformance", dir: "../..", tag: "reallvm", pkg: "./lvm/lvmtest", args: []string{"-test.run", "Real"}},
		{name: "filesystems", dir: "../..", tag: "realfs", pkg: "./node"},
		{name: "imagetools", dir: "../..", tag: "realfs", pkg: "./node", tools: true,
			args: []string{"-test.run", "OnDisk|MkfsThatIsKilled|NoMounted|StageToUnstageTwice|ForeignContent|MkfsOptionsOfTheClass"}},
	},
	"node-2": {
		{name: "driver", dir: "..", tag: "innode", pkg: "./innode"},
	},
}

// TestLVM compiles the tests that need real LVM on real device-mapper, runs each binary in a node without Kubernetes,
// and reports each test in it as a subtest.
func TestLVM(t *testing.T) {
	l, err := lab.Open(filepath.Join(os.TempDir(), "nodelvm-lvm-lab"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := l.Up(t.Context(), lab.UpOptions{Nodes: len(nodeJobs), Progress: os.Stdout}); err != nil {
		t.Fatal(err)
	}
	share := l.Share()
	compile(t, "../..", "build", "-o", share+"/nodelvm", "./cmd/nodelvm")
	unpackTools(t, l)
	for _, jobs := range nodeJobs {
		for _, j := range jobs {
			compile(t, j.dir, "test", "-c", "-tags", j.tag, "-o", filepath.Join(share, j.name+".test"), j.pkg)
		}
	}
	for node, jobs := range nodeJobs {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			for _, j := range jobs {
				j.run(t, l, node)
			}
		})
	}
}

func compile(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
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

// run runs the binary in the node. Each of its tests stands as a subtest here, and each subtest that did not pass; the exit
// code counts too. All that it printed is in dist/test.
func (j job) run(t *testing.T, l *lab.Lab, node string) {
	t.Helper()
	t.Run(j.name, func(t *testing.T) {
		argv := append([]string{"env"}, environment()...)
		if j.tools {
			argv = append(argv, "PATH="+toolsInNode+":/usr/sbin:/usr/bin:/sbin:/bin", "MKE2FS_CONFIG="+imageInNode+"/etc/mke2fs.conf")
		}
		argv = append(argv, "/mnt/lab/"+j.name+".test", "-test.v", "-test.timeout="+patience())
		whole := j.log(t)
		defer func() { _ = whole.Close() }()
		brief := &condensed{prefix: node + "  ", to: os.Stdout, shown: time.Now(), now: time.Now}
		both := io.MultiWriter(whole, brief)
		code, err := l.Exec(t.Context(), node, nil, both, both, append(argv, j.args...)...)
		if err := errors.Join(err, brief.rest()); err != nil {
			t.Fatal(err)
		}
		for _, o := range brief.outcomes {
			if o.subtest && o.word == "PASS" {
				continue
			}
			t.Run(o.name, func(t *testing.T) {
				if o.word != "PASS" {
					t.Errorf("%s in the node; its output is in %s", o.word, whole.Name())
				}
			})
		}
		if code != 0 || len(brief.outcomes) == 0 {
			t.Errorf("%s exited with %d after %d tests; all that it printed is in %s", j.name, code, len(brief.outcomes), whole.Name())
		}
	})
}

func (j job) log(t *testing.T) *os.File {
	t.Helper()
	dir, err := filepath.Abs("../../dist/test")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, j.name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// patience is how long a binary may take: `make test-long` gives more.
func patience() string {
	if limit := os.Getenv("NODELVM_TEST_PATIENCE"); limit != "" {
		return limit
	}
	return "90m"
}
