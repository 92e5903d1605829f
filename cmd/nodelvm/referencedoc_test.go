package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestFlagsReference: docs/reference/flags.md has each flag of each command with its default.
func TestFlagsReference(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("CLUSTER_ID", "")
	page, _, _ := strings.Cut(read(t, "../../docs/reference/flags.md"), "\n## `nodelvm-controller`")
	var want []string
	for _, command := range all(rootCommand()) {
		command.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			value := f.DefValue
			if value == "" {
				value = "none"
			}
			want = append(want, command.CommandPath()+"\n| `--"+f.Name+"` | "+value+" |")
		})
	}
	if len(want) < 10 {
		t.Fatalf("only the flags %q", want)
	}
	for _, row := range want {
		path, flag, _ := strings.Cut(row, "\n")
		_, section, there := strings.Cut(page, "## `"+path+"`\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !there || !strings.Contains(section, flag) {
			t.Errorf("the section on `%s` lacks the line %s", path, flag)
		}
	}
	if rows := strings.Count(page, "\n| `--"); rows != len(want) {
		t.Errorf("the page has %d flags, the commands %d", rows, len(want))
	}
}

// all is a command with everything below it that is the driver's own.
func all(command *cobra.Command) []*cobra.Command {
	commands := []*cobra.Command{command}
	for _, sub := range command.Commands() {
		if name := sub.Name(); name != "help" && name != "completion" {
			commands = append(commands, all(sub)...)
		}
	}
	return commands
}

// TestKindsReference: docs/reference/errors.md tells the gRPC code of each kind of error.
func TestKindsReference(t *testing.T) {
	page := read(t, "../../docs/reference/errors.md")
	for name, kind := range map[string]lvm.Kind{
		"Invalid": lvm.KindInvalid, "OutOfRange": lvm.KindOutOfRange, "Exists": lvm.KindExists, "NotFound": lvm.KindNotFound,
		"Busy": lvm.KindBusy, "InUse": lvm.KindInUse, "InsufficientCapacity": lvm.KindInsufficientCapacity, "NotLocal": lvm.KindNotLocal,
		"NotManaged": lvm.KindNotManaged, "Conflict": lvm.KindConflict, "Internal": lvm.KindInternal,
	} {
		if row := "\n| `" + name + "` | `" + codeOf(kind).String() + "` |"; !strings.Contains(page, row) {
			t.Errorf("the page lacks the line%s", row)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
