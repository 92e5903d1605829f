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
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/terminal"
)

// finding is one fault, and how to fix it.
type finding struct {
	Check string `json:"check"` // name of the check
	Where string `json:"where"` // a node, an object
	What  string `json:"what"`
	Fix   string `json:"fix"`
	brief bool   // it may hold for a moment in a sound cluster: doctor reports it only if it lasts
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
	name string
	find func(f *facts, found func(where, what, fix string))
}

// checks are in the order of their findings: causes before their effects.
var checks = []check{
	{"driver object", checkDriverObject},
	{"daemonset", checkDaemonSet},
	{"missing pods", checkMissingPods},
	{"sidecars", checkSidecars},
	{"rights", checkRights},
	{"nodes ready", checkNodesReady},
	{"nodes answer", checkNodesAnswer},
	{"registration", checkRegistration},
	{"mount propagation", checkPropagation},
	{"kernel modules", checkModules},
	{"storage classes", checkClasses},
	{"groups of classes", checkClassGroups},
	{"volume groups", checkGroups},
	{"locks", checkLocks},
	{"disks", checkDisks},
	{"thin pools", checkPools},
	{"conditions", checkConditions},
	{"invalid tags", checkTags},
	{"lost volumes", checkLostVolumes},
	{"lost snapshots", checkLostSnapshots},
	{"key Secrets", checkKeySecrets},
	{"snapshots", checkSnapshots},
	{"capacity", checkCapacity},
	{"claims", checkClaims},
	{"waiting pods", checkWaitingPods},
	{"expansions", checkExpansions},
	{"waiting snapshots", checkWaitingSnapshots},
	{"disruption budgets", checkBudgets},
	{"raw block volumes", checkBlockDevices},
}

// brief names the checks whose findings may hold for a moment. For example, a process still holds a lock, csi-provisioner has not yet
// updated the capacity, or a pod is being replaced.
var brief = []string{"locks", "capacity", "registration", "missing pods", "lost volumes", "lost snapshots", "key Secrets", "claims", "waiting pods", "expansions", "waiting snapshots"}

// briefPause is how long such a finding must last.
const briefPause = 5 * time.Second

func (c *command) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up of the cluster and its nodes, and say what to fix; exit status 1 if anything is found",
		Args:  cobra.NoArgs,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, _ []string) error {
			told, err := cluster.diagnose(cmd.Context(), briefPause)
			if err != nil {
				return err
			}
			if err := c.settings.print(cmd.OutOrStdout(), told, told.write); err != nil {
				return err
			}
			if len(told.Findings) > 0 {
				return errFound
			}
			return nil
		}),
	}
}

// diagnose runs all checks. If a brief finding results, it runs them again after the pause.
func (c *cluster) diagnose(ctx context.Context, pause time.Duration) (*diagnosis, error) {
	f, err := c.gather(ctx)
	if err != nil {
		return nil, err
	}
	first := examine(f)
	if !slices.ContainsFunc(first.Findings, func(x finding) bool { return x.brief }) {
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

// lasting returns the second diagnosis without the brief findings that the first does not have.
func lasting(first, second *diagnosis) *diagnosis {
	second.Findings = slices.DeleteFunc(second.Findings, func(x finding) bool {
		return x.brief && !slices.ContainsFunc(first.Findings, func(y finding) bool { return x.Check == y.Check && x.Where == y.Where })
	})
	return second
}

// examine runs all checks.
func examine(f *facts) *diagnosis {
	d := &diagnosis{Nodes: len(f.pods), Checks: len(checks), Findings: []finding{}, Unread: slices.Clone(f.unread)}
	for _, a := range f.answering() {
		for _, text := range a.page.Unknown {
			d.Unread = append(d.Unread, a.node+": "+text)
		}
	}
	for _, c := range checks {
		c.find(f, func(where, what, fix string) {
			d.Findings = append(d.Findings, finding{Check: c.name, Where: where, What: what, Fix: fix, brief: slices.Contains(brief, c.name)})
		})
	}
	return d
}

// write prints each finding as a paragraph.
func (d *diagnosis) write(w io.Writer, s screen) error {
	var b strings.Builder
	for _, x := range d.Findings {
		head := printable.Text(x.Where)
		if s.colour {
			head = string(terminal.Bad) + head + terminal.ToneEnd
		}
		fmt.Fprintf(&b, "%s (%s)\n", head, x.Check)
		wrap(&b, "    ", x.What, s.width)
		wrap(&b, "    -> ", x.Fix, s.width)
	}
	for _, text := range d.Unread {
		wrap(&b, "not checked: ", text, s.width)
	}
	verdict := "nothing is wrong"
	if n := len(d.Findings); n > 0 {
		verdict = fmt.Sprintf("%d found", n)
	} else if len(d.Unread) > 0 {
		verdict = "nothing is wrong in what could be checked"
	} else if s.colour {
		verdict = string(terminal.Good) + verdict + terminal.ToneEnd
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
