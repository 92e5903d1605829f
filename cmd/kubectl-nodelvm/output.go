package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

var formats = []string{"json", "yaml", "wide"}

// settings are the flags of all commands.
type settings struct {
	format      string
	nodeTimeout time.Duration
}

func (s *settings) bind(root *cobra.Command) {
	root.PersistentFlags().StringVarP(&s.format, "output", "o", "", "json, yaml, or wide for more columns (default: a table)")
	root.PersistentFlags().DurationVar(&s.nodeTimeout, "node-timeout", 10*time.Second, "time to wait for a node's answer")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // it fails only for an unknown flag
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if s.format != "" && !slices.Contains(formats, s.format) {
			return fmt.Errorf("--output is %q; give one of %s", s.format, strings.Join(formats, ", "))
		}
		return nil
	}
}

func (s *settings) wide() bool { return s.format == "wide" }

// print writes data as JSON or YAML; for a table it calls text.
func (s *settings) print(w io.Writer, data any, text func(w io.Writer, screen screen) error) error {
	switch s.format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(data)
	case "yaml":
		out, err := yaml.Marshal(data)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	default:
		return text(w, screenOf(w))
	}
}

// screen describes where the text goes.
type screen struct {
	width  int // columns; 0 for a file or a pipe, where nothing is cut
	colour bool
	bars   bool // draw fill levels as bars
}

// screenOf describes w; only a terminal has a width, colour and bars. A NO_COLOR that is not empty disables colour (no-color.org).
func screenOf(w io.Writer) screen {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return screen{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	dumb := os.Getenv("TERM") == "dumb"
	return screen{width: width, colour: os.Getenv("NO_COLOR") == "" && !dumb, bars: !dumb}
}
