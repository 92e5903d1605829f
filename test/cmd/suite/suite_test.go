package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// newSchedule returns a schedule of shell commands, and the folder of their logs.
func newSchedule(t *testing.T, out *strings.Builder, commands ...string) (*schedule, string) {
	t.Helper()
	dir := t.TempDir()
	s := &schedule{out: out, interval: 20 * time.Millisecond, began: time.Now()}
	for i, command := range commands {
		name := string(rune('a' + i))
		s.parts = append(s.parts, &part{name: name, argv: []string{"sh", "-c", command}, log: filepath.Join(dir, name+".log")})
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

func TestFailureShowsTheEndOfTheLog(t *testing.T) {
	var out strings.Builder
	s, dir := newSchedule(t, &out,
		`echo "=== FAIL: pkg TestX (0.00s)"; for i in $(seq 100); do echo line $i; done; exit 3`, `echo fine; sleep 0.1`)
	event := `{"Action":"pass","Package":"p","Test":"TestY"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestX"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "a-test.json"), []byte(event), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(t.Context(), 1)
	if err := s.table(dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^a FAILED after 0s: exit status 3\.`, `=== FAIL: pkg TestX \(0\.00s\)\nline 21\n`, `(?m)^line 100$`, `(?m)^b passed in 0s$`,
		`runs: b 0s \(fine\)\n`, `(?m)^a +FAILED +0:00 +0:00 +1 +1 +0$`, `(?m)^b +passed +0:00 +0:00 +0 +0 +0$`, `(?m)^1 passed, 1 failed, 0 skipped in 0:00$`,
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
