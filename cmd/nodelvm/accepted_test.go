package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestDisksTable: one line for each recorded or ignored physical volume.
func TestDisksTable(t *testing.T) {
	var out bytes.Buffer
	err := printDisks(&out, []lvm.AcceptedPV{
		{PV: "pv-a", Device: "/dev/sda", Group: "vg", Identity: "WWID naa.1", Reason: "command"},
		{Device: "/dev/sdb", Identity: "serial S1", Reason: "first-use"},
	}, []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-x", Identity: "WWID naa.2", Reason: "it may be foreign"}})
	want := []string{"DEVICE VG PV UUID IDENTITY ACCEPTED", "/dev/sda vg pv-a WWID naa.1 command", "/dev/sdb - - serial S1 first-use", "/dev/sdx - pv-x WWID naa.2 no: it may be foreign"}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if err != nil || strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestKubeletOfACommand: a machine without a kubelet has no pods, but in the driver's pod a missing directory proves nothing.
func TestKubeletOfACommand(t *testing.T) {
	there, missing := t.TempDir(), filepath.Join(t.TempDir(), "kubelet")
	for name, c := range map[string]struct {
		dir, environment, want string
	}{
		"a kubelet":                         {there, "", there},
		"no kubelet":                        {missing, "", ""},
		"the driver's pod":                  {there, there, there},
		"the driver's pod, wrong directory": {missing, missing, missing},
	} {
		t.Setenv(kubeletDirVariable, c.environment)
		var o acceptedOptions
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		o.bind(flags)
		if c.environment == "" {
			must(t, flags.Set("kubelet-dir", c.dir))
		}
		if got := o.onAnyMachine(); got.KubeletDir != c.want || got.File != "/var/lib/nodelvm/accepted.json" || got.Driver != "nodelvm.io" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDisksArguments: a command without its argument does nothing.
func TestDisksArguments(t *testing.T) {
	for _, args := range [][]string{{"disks", "x"}, {"disks", "accept"}, {"disks", "forget"}} {
		cmd := rootCommand()
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
