//go:build onecall

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFilesOfOneCall limits how many files a reader has to open to follow one call through the driver. The call runs on a simulated node, so
// the files that read disks and devices do not count. The recovery after the start runs beside it, and does not count either.
// The limits are what the code has, and for a stage one file for goroutines. Package node has seven
// of a stage's files: the others tag the new volume as ready, and read the group.
func TestFilesOfOneCall(t *testing.T) {
	for _, call := range []struct {
		name, folder, test string
		env                []string
		most               int
	}{
		{"CreateVolume", "controller", "TestOneCreateVolume", nil, 35},
		{"NodeStageVolume of a new volume", "node", "TestOneStage", nil, 30},
		{"NodeStageVolume of a ready volume", "node", "TestOneStage", []string{"READY=1"}, 20},
	} {
		t.Run(call.name, func(t *testing.T) {
			files := touchedBy(t, call.folder, call.test, call.env)
			t.Logf("%d files:\n%s", len(files), strings.Join(files, "\n"))
			if len(files) > call.most {
				t.Errorf("the call touches %d files, at most %d are allowed", len(files), call.most)
			}
			if len(files) < 10 {
				t.Errorf("the call touches only %d files: the counters are wrong", len(files))
			}
		})
	}
}

// touchedBy returns the files of the driver whose code runs more often in a test with its call than without.
func touchedBy(t *testing.T, folder, test string, env []string) (files []string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "test")
	build := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-c", "-o", program, "-covermode=atomic",
		"-coverpkg=./api,./controller,./internal/...,./lvm/...,./node/...", "./"+folder)
	build.Dir = "../.."
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	before, after := counted(t, program, test, append(env, "WITHOUT_CALL=1")), counted(t, program, test, env)
	for block, count := range after { // lvm/spec.go:10.2,12.3
		file, _, _ := strings.Cut(block, ":")
		isOther := strings.HasPrefix(file, "lvm/lvmtest") || strings.HasPrefix(file, "lvm/internal/fixture") || strings.HasPrefix(file, "lvm/internal/recovery/")
		if count > before[block] && !isOther {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// counted runs one test, and returns how often each block of the driver's code ran.
func counted(t *testing.T, program, test string, env []string) map[string]int {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	command := exec.CommandContext(t.Context(), program, "-test.run=^"+test+"$", "-test.coverprofile="+profile)
	command.Env, command.Dir = append(os.Environ(), env...), t.TempDir()
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	text, err := os.ReadFile(profile)
	must(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) { // github.com/nodelvm/nodelvm/lvm/spec.go:10.2,12.3 1 5
		if words := strings.Fields(strings.TrimPrefix(line, module)); len(words) == 3 {
			counts[words[0]], _ = strconv.Atoi(words[2])
		}
	}
	return counts
}
