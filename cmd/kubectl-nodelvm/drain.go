package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/pending"
)

// drainOptions are the flags of drain.
type drainOptions struct {
	to     string
	dryRun bool
	yes    bool
	wait   bool
}

func (c *command) drainCommand() *cobra.Command {
	o := &drainOptions{}
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Move all volumes of a node to other nodes: print a plan, ask, annotate the claims, and print the progress",
		Long: `Move all volumes of a node to other nodes, to remove it for good.

The command prints a plan with the target of each claim, and asks before it annotates the claims. It stops no pod: the last
copy of a volume begins when its pod has ended, for example by kubectl drain. It can be interrupted and repeated: a move that has begun keeps its target.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNode,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, args []string) error {
			return c.drain(cmd, cluster, args[0], o)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.to, "to", "", "node for all volumes (default: for each the one with the most capacity of those where its pods can run)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the plan and the annotations; the API server checks them, and nothing changes")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&o.wait, "wait", true, "print the progress until the volumes have moved")
	return cmd
}

// drain plans, asks, writes and waits.
func (c *command) drain(cmd *cobra.Command, cluster *cluster, node string, o *drainOptions) error {
	ctx := cmd.Context()
	f, err := cluster.moveFacts(ctx, "", nil)
	if err != nil {
		return err
	}
	if f.volumes == nil || f.nodes == nil || f.published == nil {
		return fmt.Errorf("a drain needs the right to list PersistentVolumes, nodes and CSIStorageCapacities: %s", strings.Join(f.unread, "; "))
	}
	if f.node(node) == nil {
		return fmt.Errorf("the cluster has no node %q%s", node, suffix("; the driver runs on ", nodeWords(f.driverNodes())))
	}
	p := f.planDrain(node, o.to)
	if err := c.settings.print(cmd.OutOrStdout(), p, func(w io.Writer) error { return p.writeDrain(w, node, f.node(node)) }); err != nil {
		return err
	}
	out := c.messages(cmd)
	if len(p.Changes) > 0 {
		size, copied := p.total()
		question := fmt.Sprintf("Move %d volumes (%s, %s to copy, about %s at the rate of one copy) from node %s?", len(p.Changes), size, copied, duration.HumanDuration(p.estimate()), node)
		if err := confirm(cmd, o.yes || o.dryRun, question); err != nil {
			return err
		}
		if err := cluster.annotateAll(ctx, out, p.Changes, o.dryRun); err != nil {
			return err
		}
	}
	if !o.dryRun {
		if err := writeNext(out, p.toStop()); err != nil {
			return err
		}
	}
	return c.endDrain(ctx, cluster, out, p, node, o)
}

// endDrain waits for the moves, and says what stays.
func (c *command) endDrain(ctx context.Context, cluster *cluster, out io.Writer, p *movePlan, node string, o *drainOptions) error {
	stays := p.refused()
	if o.wait && !o.dryRun {
		left, err := cluster.wait(ctx, out, p)
		if err != nil {
			return err
		}
		for _, text := range append(left, stays...) {
			if _, err := fmt.Fprintln(out, "stays on "+node+": "+printable.Text(text)); err != nil {
				return err
			}
		}
		if stays = append(stays, left...); len(stays) == 0 {
			_, err := fmt.Fprintf(out, "All claims' volumes have left %s. Before you remove it: kubectl nodelvm drain-check %s\n", node, printable.ShellWord(node))
			return err
		}
	}
	if len(stays) > 0 {
		return errFound
	}
	return nil
}

// planDrain plans the moves of all claims with a volume on a node, and lists what stays there. A claim whose move has begun, or that names a
// node that still can have it, keeps that target.
func (f *moveFacts) planDrain(node, to string) *movePlan {
	var claims []*corev1.PersistentVolumeClaim
	var stays []leftRow
	users := usersOf(f.pods)
	for i := range f.volumes {
		pv := &f.volumes[i]
		if pending.NodeOf(pv) != node || pv.Annotations[api.AnnotationMovingTo] == node {
			continue
		}
		claim := f.claimOf(pv)
		switch {
		case claim == nil:
			stays = append(stays, leftVolume(pv, users))
		case isEphemeral(claim):
			row := leftVolume(pv, users)
			row.Note = "ephemeral: deleted with its pod"
			stays = append(stays, row)
		default:
			claims = append(claims, claim)
		}
	}
	slices.SortFunc(claims, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	p := f.planMove(claims, to)
	p.Stays = append(stays, f.leftSnapshots(node)...)
	p.Arrive = f.arriving(node)
	return p
}

// arriving returns sentences about the claims whose volumes move to a node, or that ask for that.
func (f *moveFacts) arriving(node string) (texts []string) {
	moving := map[string]bool{}
	for i := range f.volumes {
		moving[f.volumes[i].Name] = f.volumes[i].Annotations[api.AnnotationMovingTo] == node
	}
	for i := range f.claims {
		claim := &f.claims[i]
		if claim.Annotations[api.AnnotationMoveTo] != node && !moving[claim.Spec.VolumeName] {
			continue
		}
		if row, has := moveRowOf(claim, f.volume(claim), true); has && !row.ended() && row.To == node {
			texts = append(texts, fmt.Sprintf("claim %s is moving to node %s (%s): cancel that (kubectl nodelvm move -n %s %s --cancel), or repeat the drain when it has moved",
				row.Claim, node, row.Phase, claim.Namespace, claim.Name))
		}
	}
	slices.Sort(texts)
	return texts
}

// claimOf returns the claim of a volume; nil: it is deleted.
func (f *moveFacts) claimOf(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if pv.Spec.ClaimRef == nil {
		return nil
	}
	claim := f.claim(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	if claim == nil || claim.Spec.VolumeName != pv.Name || !pending.MayBind(pv, claim) {
		return nil
	}
	return claim
}

// leftSnapshots are the snapshots on a node.
func (f *moveFacts) leftSnapshots(node string) (rows []leftRow) {
	for i := range f.contents {
		if item := &f.contents[i]; item.Labels[api.LabelManagedBy] == node {
			rows = append(rows, leftRow{Kind: "snapshot", Name: item.name(), Volume: item.handle(), Note: "on the disks of this node alone"})
		}
	}
	slices.SortFunc(rows, func(a, b leftRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// writeDrain prints the plan, and what stays on the node.
func (p *movePlan) writeDrain(w io.Writer, name string, node *corev1.Node) error {
	if err := p.write(w); err != nil {
		return err
	}
	for _, why := range p.refused() {
		if _, err := fmt.Fprintln(w, "cannot move: "+printable.Text(why)); err != nil {
			return err
		}
	}
	for _, row := range p.Stays {
		if _, err := fmt.Fprintln(w, printable.Text(fmt.Sprintf("stays on %s: %s %s (%s)", name, row.Kind, row.Name, row.Note))); err != nil {
			return err
		}
	}
	if !node.Spec.Unschedulable && len(p.Groups) > 0 {
		_, err := fmt.Fprintln(w, "note: new volumes can still be created on the node until you run: kubectl cordon "+printable.ShellWord(name))
		return err
	}
	return nil
}
