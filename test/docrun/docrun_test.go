package docrun

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

const text = "# Title\n\n<!-- not run: no registry -->\n```sh\nhelm pull\n```\n\n<!-- on node-1 -->\n<!-- with a.enabled -->\n<!-- exit status 3 -->\n```sh\nlvs\n```\n" +
	"\n<!-- file a.yaml -->\n```yaml\na: 1\n```\n\n- A list\n\n  <!-- setup:\n  one\n  -->\n  ```console\n  $ a \\\n    b\n  out\n  $ c\n  ```\n"

func TestParse(t *testing.T) {
	blocks, err := Parse(text)
	check.Must(t, err)
	want := []Block{
		{Line: 4, Kind: Shell, Text: "helm pull\n", NotRun: "no registry"},
		{Line: 11, Kind: Shell, Text: "lvs\n", With: "a.enabled", Node: "node-1", Exit: 3},
		{Line: 16, Kind: YAML, Text: "a: 1\n", File: "a.yaml"},
		{Line: 25, Kind: Console, Text: "$ a \\\n  b\nout\n$ c\n", Setup: "one\n"},
	}
	if !slices.Equal(blocks, want) {
		t.Errorf("got\n%+v, want\n%+v", blocks, want)
	}
	commands, err := blocks[3].Commands()
	if err != nil || len(commands) != 2 || commands[0].Text != "a \\\n  b" || !slices.Equal(commands[0].Want, []string{"out"}) || commands[1].Text != "c" {
		t.Errorf("commands %+v, %v", commands, err)
	}
	for _, bad := range []string{"```sh\nls\n", "<!-- not run: -->\n```sh\nls\n```\n", "<!-- maybe -->\n```sh\nls\n```\n", "<!-- setup:\none\n-->\ntext\n```sh\nls\n```\n"} {
		if blocks, err := Parse(bad); err == nil {
			t.Errorf("%q is accepted: %+v", bad, blocks)
		}
	}
}

func TestDiffers(t *testing.T) {
	const printed = "NAME    SIZE\nnode-1  8184 MiB\nnode-2  11.9 GiB  ok\n"
	for want, same := range map[string]bool{
		"NAME SIZE\nnode-1 7 GiB":      true,
		"NAME SIZE\n…\nnode-3 12 GiB…": true,
		"node-1 …":                     true,
		"node-2 12 GiB ok\nNAME SIZE":  false,
		"nodes-2 7 GiB ok":             false,
		"node":                         false,
	} {
		if got := Differs(strings.Split(want, "\n"), printed); (got == "") != same {
			t.Errorf("%q: %q", want, got)
		}
	}
}

func TestOutputOfAShell(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := newWatched()
	go func() {
		for _, part := range []string{"a\nen", "d\nb", "\n"} {
			_, _ = w.Write([]byte(part)) // it never fails
		}
		w.close(errors.New("exit status 1"))
	}()
	if out, err := w.until(ctx, "end\n"); out != "a\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := w.until(ctx, "end\n"); out != "b\n" || err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestEveryPageIsFollowed: the tutorial and each how-to guide are in the list of a test, and each of their blocks is of a kind that it runs.
func TestEveryPageIsFollowed(t *testing.T) {
	paths := []string{filepath.Join("..", "..", "docs", "tutorial.md")}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		more, err := filepath.Glob(filepath.Join("..", "..", "docs", "howto", pattern))
		check.Must(t, err)
		paths = append(paths, more...)
	}
	for _, path := range paths {
		name, err := filepath.Rel(filepath.Join("..", "..", "docs"), path)
		check.Must(t, err)
		if _, err := Find(filepath.ToSlash(name)); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(path)
		check.Must(t, err)
		blocks, err := Parse(string(page))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, b := range blocks {
			if !slices.Contains([]Kind{Shell, Console, YAML}, b.Kind) {
				t.Errorf("%s:%d: a block of kind %q: want sh, console or yaml", path, b.Line, b.Kind)
			}
			if b.NotRun != "" {
				t.Logf("%s:%d: not run: %s", path, b.Line, b.NotRun)
			}
		}
		if line := indented(string(page)); line != 0 {
			t.Errorf("%s:%d: an indented block, which no test runs: fence it", path, line)
		}
	}
}

// indented is the first line that Markdown takes for code because of its indentation; 0 means none.
func indented(page string) int {
	inside, empty := false, true
	for i, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		}
		if !inside && empty && strings.HasPrefix(line, "    ") {
			return i + 1
		}
		empty = strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")
	}
	return 0
}
