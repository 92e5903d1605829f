package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// testLab returns a lab with its own folders and without processes.
func testLab(t *testing.T) *Lab {
	t.Helper()
	l := &Lab{dir: t.TempDir(), cache: t.TempDir(), netns: "nodelvm-lab-unit"}
	must(t, l.prepareDirs())
	return l
}

func TestArtifactIsBuiltOncePerKey(t *testing.T) {
	l := testLab(t)
	builds := 0
	build := func(dir string) error {
		builds++
		return os.WriteFile(filepath.Join(dir, "thing"), []byte(fmt.Sprint(builds)), 0o644)
	}
	for _, c := range []struct{ key, want string }{{"a", "1"}, {"a", "1"}, {"b", "2"}, {"a", "1"}} {
		dir, err := l.artifact(t.Context(), "kind", c.key, build)
		must(t, err)
		if got, err := os.ReadFile(filepath.Join(dir, "thing")); err != nil || string(got) != c.want {
			t.Errorf("artifact %s = %q, %v, want %q", c.key, got, err, c.want)
		}
	}
}

func TestFailedBuildIsRepeated(t *testing.T) {
	l := testLab(t)
	broken := errors.New("broken")
	_, err := l.artifact(t.Context(), "kind", "a", func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("artifact = %v, want the build's error", err)
	}
	dir, err := l.artifact(t.Context(), "kind", "a", func(string) error { return nil })
	must(t, err)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the second build begins with %v, %v, want an empty folder", left, err)
	}
}

func TestPruneKeepsWhatWasUsedLast(t *testing.T) {
	parent := t.TempDir()
	for age, name := range []string{"newest", "newer", "old", "oldest"} {
		dir := filepath.Join(parent, name)
		at := time.Now().Add(-time.Duration(age) * time.Hour)
		must(t, errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, at, at)))
	}
	must(t, pruneOld(parent, 3))
	left, err := filepath.Glob(parent + "/*")
	if err != nil || len(left) != 3 {
		t.Fatalf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(parent, "oldest")); err == nil {
		t.Errorf("the oldest is still there")
	}
}

func TestLockExcludes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), file)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second lock = %v, want to wait until the deadline", err)
	}
	unlock()
	unlock, err = lockFile(t.Context(), file)
	if err != nil {
		t.Fatalf("lock after unlock: %v", err)
	}
	unlock()
}

func TestRecordsDistinguishProcesses(t *testing.T) {
	l := testLab(t)
	must(t, l.record("self", os.Getpid()))
	if !l.alive("self") {
		t.Errorf("this process is not seen as alive")
	}
	for name, content := range map[string]string{
		"other start": fmt.Sprintf("%d 1", os.Getpid()), "cut off": "12", "empty": "", "init": "1 1",
	} {
		must(t, os.WriteFile(l.recordFile("bad"), []byte(content), 0o644))
		if l.alive("bad") {
			t.Errorf("%s: a process is taken for ours", name)
		}
	}
}

func TestStepShowsTheLogOfAFailure(t *testing.T) {
	l := testLab(t)
	must(t, os.WriteFile(l.logFile("etcd"), []byte("first\nwhat went wrong\n"), 0o644))
	var out bytes.Buffer
	err := newProgress(&out).step("control plane", func(teller) error {
		return fmt.Errorf("start: %w", l.logged("etcd", errors.New("etcd has stopped")))
	})
	if err == nil || !strings.Contains(err.Error(), l.logFile("etcd")) {
		t.Errorf("step = %v, want the log's name", err)
	}
	for _, want := range []string{"!! control plane", "| what went wrong", l.logFile("etcd")} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}

var must = check.Must
