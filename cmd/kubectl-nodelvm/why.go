package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/terminal"
	"github.com/nodelvm/nodelvm/pending"
)

func (c *command) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why NAME",
		Short: "Explain why a claim, or the claims of a pod, have no volume: causes, and what each node lacks",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			namespace, _, err := c.config.Namespace()
			if err != nil {
				return err
			}
			answers, err := cluster.why(cmd.Context(), namespace, args[0])
			if err != nil {
				return mayNotExplain(err)
			}
			return c.settings.print(cmd.OutOrStdout(), answers, func(w io.Writer, s screen) error { return writeWhy(w, s, answers, c.settings.wide()) })
		},
	}
}

// why explains a claim, or the claims of a pod that have no volume.
func (c *cluster) why(ctx context.Context, namespace, name string) ([]pending.Answer, error) {
	w, err := c.gatherWhy(ctx, namespace)
	if err != nil {
		return nil, err
	}
	claims, err := w.named(name)
	if err != nil {
		return nil, err
	}
	answers := []pending.Answer{}
	for _, claim := range claims {
		answers = append(answers, pending.Explain(w.facts(claim)))
	}
	return answers, nil
}

// nodesShown limits the nodes in the text; -o wide, json and yaml have all.
const nodesShown = 20

// writeWhy prints the causes of each claim, and then what each node lacks. It prints lines instead of a table, because an obstacle
// is a sentence.
func writeWhy(w io.Writer, s screen, answers []pending.Answer, wide bool) error {
	for _, a := range answers {
		var text strings.Builder
		fmt.Fprintf(&text, "claim %s: %s of StorageClass %q", a.Claim, a.Size, a.Class)
		if len(a.Pods) > 0 {
			text.WriteString(" for " + strings.Join(a.Pods, ", "))
		}
		text.WriteString("\n")
		for _, cause := range a.Causes {
			writeLine(&text, s, terminal.Bad, "  cause: ", cause.Text)
			if cause.Fix != "" {
				writeLine(&text, s, terminal.Plain, "    fix: ", cause.Fix)
			}
		}
		for i, n := range a.Nodes {
			if i == nodesShown && !wide {
				fmt.Fprintf(&text, "  and %d more nodes: see -o wide\n", len(a.Nodes)-i)
				break
			}
			writeNode(&text, s, n)
		}
		if _, err := io.WriteString(w, text.String()); err != nil {
			return err
		}
	}
	return nil
}

func writeNode(text *strings.Builder, s screen, n pending.NodeAnswer) {
	if len(n.Obstacles) == 0 {
		can := "no obstacle"
		if n.Largest != nil { // nil: the driver refuses the class's parameters, or publishes no maximum
			can = "has capacity, for at most " + n.Largest.String()
		}
		writeLine(text, s, terminal.Good, "  "+printable.Text(n.Node)+": ", can)
	}
	for _, obstacle := range n.Obstacles {
		writeLine(text, s, terminal.Plain, "  "+printable.Text(n.Node)+": ", obstacle)
	}
}

func writeLine(text *strings.Builder, s screen, t terminal.Tone, label, sentence string) {
	sentence = printable.Text(sentence)
	if s.colour && t != terminal.Plain {
		sentence = string(t) + sentence + terminal.ToneEnd
	}
	text.WriteString(label + sentence + "\n")
}

// mayNotExplain adds to a "forbidden" error the rights that why needs.
func mayNotExplain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; why reads nodes, StorageClasses and the drivers' status pages: the role nodelvm-viewer allows that", err)
	}
	return err
}
