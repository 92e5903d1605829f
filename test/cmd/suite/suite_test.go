package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// newSchedule returns a schedule of shell commands, and the folder of their logs.
func newSchedule(t *testing.T, out *strings.Builder, commands ...string) (*schedule, string) {
	t.Helper()
	dir := t.TempDir()
	s := &schedule{out: out, interval: 20 * time.Millisecond, began: time.Now(), labs: 1}
	for i, command := range commands {
		name := string(rune('a' + i))
		s.parts = append(s.parts, newPart(dir, name, []string{"sh", "-c", command}))
	}
	return s, dir
}

func TestPartsRunAtTheSameTime(t *testing.T) {
	var out strings.Builder
	dir := t.TempDir()
	waitFor := func(name string) string {
		return "until [ -e " + filepath.Join(dir, name) + " ]; do sleep 0.01; done"
	}
	touch := func(name string) string { return "touch " + filepath.Join(dir, name) }
	// a and b end only if both run; c starts after one of them, and b waits for it.
	s, _ := newSchedule(t, &out, touch("a")+"; "+waitFor("b"), touch("b")+"; "+waitFor("c"), touch("c"))
	s.run(t.Context(), 2)
	if failed := s.failed(); len(failed) > 0 {
		t.Errorf("failed: %v\n%s", failed, &out)
	}
	if s.parts[2].began.Before(s.parts[0].ended) {
		t.Errorf("the third part began before one of two had ended")
	}
}

func TestPartsWithNodesRunOneAfterTheOther(t *testing.T) {
	var out strings.Builder
	s, _ := newSchedule(t, &out, "sleep 0.1", "true", "sleep 0.1")
	s.parts[0].nodes, s.parts[1].nodes = true, true
	s.run(t.Context(), 3)
	if s.parts[1].began.Before(s.parts[0].ended) {
		t.Error("two parts with nodes ran at the same time")
	}
	if s.parts[2].began.After(s.parts[0].ended) {
		t.Error("a part without nodes waited for one with nodes")
	}
}

// events are those of a package with a failed subtest, whose parent fails after it.
const events = `{"Action":"pass","Package":"p","Test":"TestY","Elapsed":2}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Test":"TestX/a_b","Output":"    x_test.go:7: before\n"}
{"Action":"output","Package":"q","Test":"TestX/a_b","Output":"        got 1, want 2\n"}
{"Time":"2026-01-02T03:04:05Z","Action":"fail","Package":"q","Test":"TestX/a_b","Elapsed":1}
{"Action":"fail","Package":"q","Test":"TestX","Elapsed":3}
{"Action":"fail","Package":"q"}
`

// TestFailureIsExplained: the last 40 lines of the output have the first failed assertion, the log, and a command that repeats the test.
func TestFailureIsExplained(t *testing.T) {
	var out strings.Builder
	s, dir := newSchedule(t, &out, `for i in $(seq 100); do echo line $i; done; exit 3`, `echo fine; sleep 0.1`)
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a-all.json", `{"Time":"2026-01-02T03:04:06Z","Action":"fail","Package":"r","Test":"TestThatRunsX","Elapsed":4}`)
	write("a-test.json", events)
	write("a-test.repeat", "(cd here && NODELVM_TEST_RUN=RUN go test -run RUN PACKAGE)\n")
	s.run(t.Context(), 1)
	write("a.usage", "12.5")
	write("a.tools", "compile 1500000\nlink 500000\n")
	must(t, s.table())
	lines := strings.Split(out.String(), "\n")
	end := strings.Join(lines[max(0, len(lines)-40):], "\n")
	for _, want := range []string{
		`(?m)^a FAILED: exit status 3$`, `(?m)^\| line 100$`, `(?m)^The whole log: .*/a\.log$`, `(?m)^First failure: TestX/a_b of q$`,
		`(?m)^  +x_test\.go:7: before\n  +got 1, want 2$`, `(?m)^To repeat it: \(cd here && NODELVM_TEST_RUN='\^TestX\$/\^a_b\$' go test -run '\^TestX\$/\^a_b\$' q\)$`,
		`(?m)^CPU 12\.5 s, of which compiling 2\.0 s$`, `(?m)^1 passed, 3 failed, 0 skipped in 0:00$`,
	} {
		if !regexp.MustCompile(want).MatchString(end) {
			t.Errorf("the last 40 lines lack %s:\n%s", want, end)
		}
	}
	for _, want := range []string{
		`(?m)^a FAILED after 0s: exit status 3;`, `(?m)^b passed in 0s$`, `runs: b 0s \(fine\)\n`,
		`(?m)^a +FAILED +0:00 +0:00 +12 s +2 s +1 +3 +0$`, `(?m)^b +passed +0:00 +0:00 +0 s +0 s +0 +0 +0$`, `tests:\n +4\.0 s  TestThatRunsX\n +3\.0 s  TestX\n +2\.0 s  TestY\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the output lacks %s:\n%s", want, &out)
		}
	}
}

func TestInterruptEndsPartsAndStartsNoOther(t *testing.T) {
	var out strings.Builder
	s, _ := newSchedule(t, &out, "sleep 600", "true")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s.run(ctx, 1)
	if len(s.failed()) != 2 || !strings.Contains(out.String(), "b FAILED after 0s: not started") {
		t.Errorf("failed: %v\n%s", s.failed(), &out)
	}
}

var must = check.Must
