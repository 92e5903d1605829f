package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestEachFaultCanBePlanted: a change of the driver's code that moves a fault's place must move the fault, too.
func TestEachFaultCanBePlanted(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		for _, file := range m.files() {
			text, err := os.ReadFile(filepath.Join("../../..", file))
			if err != nil {
				t.Error(err)
				continue
			}
			if faulty, err := m.plant(file, string(text)); err != nil || faulty == string(text) {
				t.Errorf("%s: %v", m.name, err)
			}
		}
		if names[m.name] || len(m.packages) == 0 {
			t.Errorf("%s has the name of another fault, or no packages", m.name)
		}
		names[m.name] = true
	}
	if len(mutants) < 20 {
		t.Errorf("there are %d faults, want 20 or more", len(mutants))
	}
}

func TestFailedTest(t *testing.T) {
	for out, want := range map[string]string{
		"--- FAIL: TestX (0.00s)\n    --- FAIL: TestX/a (0.00s)\n": "TestX", "panic: oops\n": "a panic",
	} {
		if got, err := failedTest(out); err != nil || got != want {
			t.Errorf("%q: %q, %v", out, got, err)
		}
	}
	for _, out := range []string{"FAIL x [build failed]\n--- FAIL: TestX (0s)", "exit status 1"} {
		if got, err := failedTest(out); err == nil {
			t.Errorf("%q: %q", out, got)
		}
	}
}
