package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

// finding is one fault, and how to fix it.
type finding struct {
	Check string `json:"check"` // name of the check
	Where string `json:"where"` // a node, an object
	What  string `json:"what"`
	Fix   string `json:"fix"`

	transient bool // it may hold for a moment in a sound cluster: doctor reports it only if it lasts
}

// diagnosis is doctor's result.
type diagnosis struct {
	Nodes    int       `json:"nodes"`  // with the driver
	Checks   int       `json:"checks"` // number of checks
	Findings []finding `json:"findings"`
	Unread   []string  `json:"unread,omitempty"` // sentences: what the doctor could not check
}

// check looks for one kind of fault in the facts.
type check struct {
	name      string
	find      func(f *facts, found func(where, what, fix string))
	transient bool // its findings may hold for a moment: a process still holds a lock, or a pod is being replaced
}

// checks are in the order of their findings: causes before their effects.
var checks = []check{
	{"driver object", checkDriverObject, false},
	{"daemonset", checkDaemonSet, false},
	{"missing pods", checkMissingPods, true},
	{"sidecars", checkSidecars, false},
	{"rights", checkRights, false},
	{"nodes ready", checkNodesReady, false},
	{"nodes answer", checkNodesAnswer, false},
	{"registration", checkRegistration, true},
	{"mount propagation", eachNode(checkPropagation), false},
	{"kernel modules", checkModules, false},
	{"storage classes", checkClasses, false},
	{"groups of classes", checkClassGroups, false},
	{"volume groups", eachNode(checkGroups), false},
	{"locks", eachNode(checkLocks), true},
	{"disks", eachNode(checkDisks), false},
	{"thin pools", eachNode(checkPools), false},
	{"conditions", eachNode(checkConditions), false},
	{"invalid tags", eachNode(checkTags), false},
	{"lost volumes", checkLostVolumes, true},
	{"lost snapshots", checkLostSnapshots, true},
	{"orphans", checkOrphans, false},
	{"key Secrets", checkKeySecrets, true},
	{"snapshots", checkSnapshots, false},
	{"capacity", checkCapacity, true},
	{"claims", checkClaims, true},
	{"waiting pods", checkWaitingPods, true},
	{"expansions", checkExpansions, true},
	{"attributes", checkAttributes, true},
	{"moves", checkMoves, true},
	{"waiting snapshots", checkWaitingSnapshots, true},
	{"quotas", eachNode(checkQuotas), false},
	{"disruption budgets", checkBudgets, false},
	{"raw block volumes", checkBlockDevices, false},
}

// eachNode calls a check for each node that answered.
func eachNode(find func(f *facts, a *answer, found func(where, what, fix string))) func(*facts, func(where, what, fix string)) {
	return func(f *facts, found func(where, what, fix string)) {
		for _, a := range f.answering() {
			find(f, &a, found)
		}
	}
}

// transientPause is how long a transient finding must last.
const transientPause = 5 * time.Second

func (c *command) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up of the cluster and its nodes, and say what to fix; exit status 1 if anything is found",
		Args:  cobra.NoArgs,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, _ []string) error {
			d, err := cluster.diagnose(cmd.Context(), transientPause)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if err := c.settings.print(out, d, func(w io.Writer) error { return d.write(w, columns(out)) }); err != nil {
				return err
			}
			if len(d.Findings) > 0 {
				return errFound
			}
			return nil
		}),
	}
}

// diagnose runs all checks. If a transient finding results, it runs them again after the pause.
func (c *cluster) diagnose(ctx context.Context, pause time.Duration) (*diagnosis, error) {
	f, err := c.gather(ctx)
	if err != nil {
		return nil, err
	}
	first := examine(f)
	if !slices.ContainsFunc(first.Findings, func(x finding) bool { return x.transient }) {
		return first, nil
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if f, err = c.gather(ctx); err != nil {
		return nil, err
	}
	return lasting(first, examine(f)), nil
}

// lasting returns the second diagnosis without the transient findings that the first does not have.
func lasting(first, second *diagnosis) *diagnosis {
	second.Findings = slices.DeleteFunc(second.Findings, func(x finding) bool {
		return x.transient && !slices.ContainsFunc(first.Findings, func(y finding) bool { return x.Check == y.Check && x.Where == y.Where })
	})
	return second
}

// examine runs all checks.
func examine(f *facts) *diagnosis {
	d := &diagnosis{Nodes: len(f.drivers), Checks: len(checks), Findings: []finding{}, Unread: slices.Clone(f.unread)}
	for _, a := range f.answering() {
		for _, text := range a.page.Unknown {
			d.Unread = append(d.Unread, a.node+": "+text)
		}
		if why := a.notCompared(); why != "" {
			d.Unread = append(d.Unread, a.node+": orphans: "+why)
		}
	}
	for _, c := range checks {
		c.find(f, func(where, what, fix string) {
			d.Findings = append(d.Findings, finding{Check: c.name, Where: where, What: what, Fix: fix, transient: c.transient})
		})
	}
	return d
}

// write prints each finding as a paragraph, in lines of at most width columns; 0: no limit.
func (d *diagnosis) write(w io.Writer, width int) error {
	var b strings.Builder
	for _, x := range d.Findings {
		fmt.Fprintf(&b, "%s (%s)\n", printable.Text(x.Where), x.Check)
		wrap(&b, "    ", x.What, width)
		wrap(&b, "    -> ", x.Fix, width)
	}
	for _, text := range d.Unread {
		wrap(&b, "not checked: ", text, width)
	}
	verdict := "nothing is wrong"
	if n := len(d.Findings); n > 0 {
		verdict = fmt.Sprintf("%d found", n)
	} else if len(d.Unread) > 0 {
		verdict = "nothing is wrong in what could be checked"
	}
	nodes := fmt.Sprint(d.Nodes, " nodes")
	if d.Nodes == 1 {
		nodes = "1 node"
	}
	fmt.Fprintf(&b, "%d checks over %s with the driver: %s.\n", d.Checks, nodes, verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes a text after a prefix, in lines of at most width columns; its further lines are indented by the prefix.
func wrap(b *strings.Builder, prefix, text string, width int) {
	indent := strings.Repeat(" ", len(prefix))
	room := max(20, cmp.Or(width, 1<<20)-len(prefix))
	line := ""
	for _, word := range strings.Fields(text) {
		word = printable.Text(word)
		if line != "" && len([]rune(line))+1+len([]rune(word)) > room {
			b.WriteString(prefix + line + "\n")
			prefix, line = indent, ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	b.WriteString(prefix + line + "\n")
}
