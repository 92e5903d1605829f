package main

import (
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	f := sound()
	f.answers = append(f.answers, f.answers[0])
	f.answers[2].node = "node-3"
	silence(f)
	var out strings.Builder
	must(t, (versions{Plugin: "v0.2.0", Drivers: driverVersionsOf(f.answers)}).write(&out))
	const want = "plugin: v0.2.0\ndriver: v0.1.0 (node-1, node-3)\ndriver: unknown, because the driver (pod nodelvm-node-2) has not answered within 10s (node-2)\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

// TestVersionWithoutACluster: the plugin's version needs no cluster.
func TestVersionWithoutACluster(t *testing.T) {
	root, out := newRoot(), strings.Builder{}
	root.SetOut(&out)
	root.SetArgs([]string{"version", "--kubeconfig", "/no/such/file"})
	if err := root.ExecuteContext(t.Context()); err == nil || out.String() != "plugin: "+version+"\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestAllNamespaces: -A lists all namespaces, whatever -n says.
func TestAllNamespaces(t *testing.T) {
	for args, want := range map[string]string{"volumes": "", "volumes -n shop": "shop", "volumes -A": "", "snapshots -n shop -A": ""} {
		c, root := newCommand()
		cmd, rest, err := root.Find(strings.Fields(args))
		must(t, err)
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		if all, err := cmd.Flags().GetBool(allNamespaces); err != nil || all != strings.Contains(args, "-A") {
			t.Errorf("%s: %t, %v", args, all, err)
		}
		if got, err := c.namespace(cmd); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", args, got, err, want)
		}
	}
}
