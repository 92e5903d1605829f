//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
)

const node = "node-1"

// TestLVM compiles the tests that need real LVM on real device-mapper, runs each binary in a node without Kubernetes,
// and reports every test in it as a subtest of its own.
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
	if err := l.Up(t.Context(), lab.UpOptions{Nodes: 1, Progress: os.Stdout}); err != nil {
		t.Fatal(err)
	}
	share := l.Share()
	compile(t, "../..", "build", "-o", share+"/nodelvm", "./cmd/nodelvm")
	compile(t, "../..", "test", "-c", "-tags", "reallvm", "-o", share+"/conformance.test", "./lvm/lvmtest")
	compile(t, "../..", "test", "-c", "-tags", "realfs", "-o", share+"/filesystems.test", "./node")
	compile(t, "..", "test", "-c", "-tags", "innode", "-o", share+"/innode.test", "./innode")

	inNode(t, l, "conformance", "env", "NODELVM_TEST_DISKS=/dev/ubdb,/dev/ubdc", "/mnt/lab/conformance.test", "-test.run", "Real")
	inNode(t, l, "filesystems", "/mnt/lab/filesystems.test")
	inNode(t, l, "driver", "/mnt/lab/innode.test", "-test.skip", "^TestSanity$")
	inNode(t, l, "csi-sanity, mount", "env", "SANITY_ACCESS_TYPE=mount", "/mnt/lab/innode.test", "-test.run", "^TestSanity$")
	inNode(t, l, "csi-sanity, block", "env", "SANITY_ACCESS_TYPE=block", "/mnt/lab/innode.test", "-test.run", "^TestSanity$")
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

// result is a line that `go test -v` prints at the end of a test, of a subtest too.
var result = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)

// inNode runs a test binary in the node. What it says of each test stands as a subtest here; its exit code counts too.
func inNode(t *testing.T, l *lab.Lab, name string, argv ...string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		var out bytes.Buffer
		both := io.MultiWriter(&out, os.Stdout)
		code, err := l.Exec(t.Context(), node, nil, both, both, append(argv, "-test.v", "-test.timeout=15m")...)
		if err != nil {
			t.Fatal(err)
		}
		reported := 0
		for line := range strings.Lines(out.String()) {
			match := result.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			reported++
			t.Run(match[2], func(t *testing.T) {
				if match[1] != "PASS" {
					t.Errorf("%s in the node; its output stands above", match[1])
				}
			})
		}
		if code != 0 || reported == 0 {
			t.Errorf("%s exited with %d after %d tests", argv[0], code, reported)
		}
	})
}
