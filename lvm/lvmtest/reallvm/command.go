//go:build reallvm

package reallvm

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
)

// Tool runs a program of the node, and returns all that it printed.
func Tool(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// Admin runs the node's lvm with the node's configuration, but without udev: these tests also run where udev does not. (LVM
// locks 8 MiB of memory page by page before it suspends a device; a node's root is on none of them.)
func Admin(t testing.TB, argv ...string) string {
	t.Helper()
	config := "activation { udev_sync=0 udev_rules=0 monitoring=0 reserved_memory=0 reserved_stack=0 }"
	argv = append([]string{argv[0], "--config", config}, argv[1:]...)
	return Output(t, exec.CommandContext(context.Background(), "lvm", argv...))
}

// Output runs a command, and returns what it printed to its standard output, without the space around it.
func Output(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// Dmsetup runs dmsetup, and returns all that it printed, without the space around it.
func Dmsetup(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dmsetup", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dmsetup %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
