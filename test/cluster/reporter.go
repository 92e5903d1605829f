package cluster

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// Reporter prints the steps of scenarios: live and in colour on a terminal, in plain lines elsewhere.
type Reporter struct {
	out       io.Writer
	live      bool
	scenarios int
	steps     int
}

// NewReporter returns a reporter that prints to out.
func NewReporter(out io.Writer) *Reporter {
	f, ok := out.(*os.File)
	return &Reporter{out: out, live: ok && term.IsTerminal(int(f.Fd()))}
}

// Steps returns the number of steps that have succeeded so far.
func (n *Reporter) Steps() int { return n.steps }

// BeginScenario prints the title of a scenario.
func (n *Reporter) BeginScenario(title string) {
	n.scenarios++
	n.say("\n%s\n", n.paint("1", fmt.Sprintf("%d. %s", n.scenarios, title)))
}

// Note prints a line below the current scenario.
func (n *Reporter) Note(format string, args ...any) {
	n.say("    %s\n", fmt.Sprintf(format, args...))
}

// Step announces a step; the function that it returns prints the step's result.
func (n *Reporter) Step(says string) func(error) {
	start := time.Now()
	if n.live {
		n.say("  … %s", says)
	}
	return func(err error) {
		mark := n.paint("32", "✓")
		if err != nil {
			mark = n.paint("31", "✗")
		} else {
			n.steps++
		}
		if n.live {
			n.say("\r\033[K")
		}
		n.say("  %s %s %s\n", mark, says, n.paint("2", fmt.Sprintf("(%.1f s)", time.Since(start).Seconds())))
		if err != nil {
			n.say("    %s\n", strings.ReplaceAll(err.Error(), "\n", "\n    "))
		}
	}
}

// Table prints rows under a header, in columns.
func (n *Reporter) Table(header []string, rows [][]string) {
	n.say("\n")
	w := tabwriter.NewWriter(n.out, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		_, _ = fmt.Fprintf(w, "    %s\n", strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

// say prints, and ignores errors: a scenario continues if the output is closed.
func (n *Reporter) say(format string, args ...any) { _, _ = fmt.Fprintf(n.out, format, args...) }

func (n *Reporter) paint(code, text string) string {
	if !n.live {
		return text
	}
	return "\033[" + code + "m" + text + "\033[0m"
}
