package main

import (
	"os"
	"strings"
	"testing"
)

// TestReferenceHasAllCommands: docs/reference/kubectl-plugin.md has a row for each subcommand.
func TestReferenceHasAllCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/kubectl-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := newRoot().Commands()
	if len(commands) < 5 {
		t.Fatalf("only %d subcommands were found", len(commands))
	}
	for _, c := range commands {
		if row := "\n| `kubectl nodelvm " + c.Use + "` |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/kubectl-plugin.md lacks a row that begins with %q", row[1:])
		}
	}
}
