package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/pending"
)

func (c *command) whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why NAME",
		Short: "Explain why a claim has no volume, or a pod does not start with its volumes: causes, and what each node lacks",
		Args:  cobra.ExactArgs(1),
		RunE: c.inNamespace(func(cmd *cobra.Command, cluster *cluster, namespace string, args []string) error {
			answers, err := cluster.why(cmd.Context(), namespace, args[0])
			if err != nil {
				return mayNotExplain(err)
			}
			return c.settings.print(cmd.OutOrStdout(), answers, func(w io.Writer) error { return writeWhy(w, answers, c.settings.wide()) })
		}),
	}
}

// why explains a claim, a pod, or both.
func (c *cluster) why(ctx context.Context, namespace, name string) ([]pending.Answer, error) {
	f, err := c.gatherOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	a, err := f.named(namespace, name)
	if err != nil {
		return nil, err
	}
	if f.events, err = c.eventsOf(ctx, a.objects()); err != nil {
		f.unexplained = append(f.unexplained, "events: "+err.Error())
	}
	return f.explain(a), nil
}

// nodesShown limits the nodes in the text; -o wide, json and yaml have all.
const nodesShown = 20

// writeWhy prints the causes of each claim, and then what each node lacks. It prints lines instead of a table, because an obstacle
// is a sentence.
func writeWhy(w io.Writer, answers []pending.Answer, wide bool) error {
	for _, a := range answers {
		var text strings.Builder
		text.WriteString(headOf(a) + "\n")
		for _, cause := range a.Causes {
			writeLine(&text, "  cause: ", cause.Text)
			if cause.Fix != "" {
				writeLine(&text, "    fix: ", cause.Fix)
			}
		}
		for i, n := range a.Nodes {
			if i == nodesShown && !wide {
				fmt.Fprintf(&text, "  and %d more nodes: see -o wide\n", len(a.Nodes)-i)
				break
			}
			writeNode(&text, n)
		}
		for _, unread := range a.Unread {
			writeLine(&text, "  not read: ", unread)
		}
		if _, err := io.WriteString(w, text.String()); err != nil {
			return err
		}
	}
	return nil
}

func headOf(a pending.Answer) string {
	switch {
	case a.Pod != "":
		return "pod " + a.Pod
	case a.Class == "" && a.Size == "":
		return "claim " + a.Claim + " for " + strings.Join(a.Pods, ", ")
	case len(a.Pods) > 0:
		return fmt.Sprintf("claim %s: %s of StorageClass %q for %s", a.Claim, a.Size, a.Class, strings.Join(a.Pods, ", "))
	}
	return fmt.Sprintf("claim %s: %s of StorageClass %q", a.Claim, a.Size, a.Class)
}

func writeNode(text *strings.Builder, n pending.NodeAnswer) {
	if len(n.Obstacles) == 0 {
		can := "no obstacle"
		if n.Largest != nil { // nil: the driver refuses the class's parameters, or publishes no maximum
			can = "has capacity, for at most " + n.Largest.String()
		}
		writeLine(text, "  "+printable.Text(n.Node)+": ", can)
	}
	for _, obstacle := range n.Obstacles {
		writeLine(text, "  "+printable.Text(n.Node)+": ", obstacle)
	}
}

func writeLine(text *strings.Builder, label, sentence string) {
	text.WriteString(label + printable.Text(sentence) + "\n")
}

// mayNotExplain adds to a "forbidden" error the rights that why needs.
func mayNotExplain(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; why reads nodes, StorageClasses, events and the drivers' status pages: the role nodelvm-viewer allows that", err)
	}
	return err
}
