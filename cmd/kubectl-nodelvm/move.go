package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/pending"
)

// moveOptions are the flags of move.
type moveOptions struct {
	to       string
	anywhere bool
	cancel   bool
	finish   bool
	pod      string
	dryRun   bool
	wait     bool
	yes      bool
}

func (c *command) moveCommand() *cobra.Command {
	o := &moveOptions{}
	cmd := &cobra.Command{
		Use:   "move CLAIM...",
		Short: "Move the volumes of claims to another node, cancel that, or delete the copies that they left",
		Long: `Move the volumes of claims, with those of the other claims of their pods, to another node.

The command prints a plan and annotates the claims. The drivers of both nodes do the rest, also without this command.
The pods that use the volumes have to be deleted. Thin volumes are copied before, others when their pods have ended.`,
		Args: func(_ *cobra.Command, args []string) error { return o.check(args) },
		RunE: c.inNamespace(func(cmd *cobra.Command, cluster *cluster, namespace string, args []string) error {
			return c.move(cmd, cluster, namespace, args, o)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.to, "to", "", "node that shall have the volumes")
	flags.BoolVar(&o.anywhere, "anywhere", false, "choose the node with the most capacity of those where the pods can run, and say why the others are passed over")
	flags.BoolVar(&o.cancel, "cancel", false, "cancel the moves; possible until the volumes have switched nodes")
	flags.BoolVar(&o.finish, "finish", false, "delete the copies on the nodes from which the volumes moved away")
	flags.StringVar(&o.pod, "pod", "", "move all claims of this pod")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the plan and the annotations; the API server checks them, and nothing changes")
	flags.BoolVar(&o.wait, "wait", false, "print the progress until the volumes have moved")
	flags.BoolVarP(&o.yes, "yes", "y", false, "of --finish: do not ask before the copies are deleted")
	_ = cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return c.completeNode(cmd, nil, toComplete)
	}) // it fails only for an unknown flag
	return cmd
}

// check refuses flags that say nothing, or more than one thing.
func (o *moveOptions) check(args []string) error {
	var given []string
	for name, set := range map[string]bool{"--to NODE": o.to != "", "--anywhere": o.anywhere, "--cancel": o.cancel, "--finish": o.finish} {
		if set {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) == 0:
		return errors.New("give --to NODE, --anywhere, --cancel or --finish")
	case len(given) > 1:
		return fmt.Errorf("%s do not go together: give one of them", strings.Join(given, " and "))
	case len(args) == 0 && o.pod == "":
		return errors.New("give the names of claims, or --pod POD for all claims of a pod")
	case len(args) > 0 && o.pod != "":
		return errors.New("give the names of claims or --pod, not both: the claims of a pod move together anyway")
	case o.wait && (o.dryRun || o.cancel || o.finish):
		return errors.New("--wait waits for moves that the command begins: it does not go with --dry-run, --cancel and --finish")
	}
	return nil
}

// move does what the flags say.
func (c *command) move(cmd *cobra.Command, cluster *cluster, namespace string, args []string, o *moveOptions) error {
	f, err := cluster.moveFacts(cmd.Context(), namespace, nil)
	if err != nil {
		return inOneNamespace(err)
	}
	claims, err := f.asked(namespace, args, o.pod)
	if err != nil {
		return err
	}
	switch {
	case o.cancel:
		return c.cancelMoves(cmd, cluster, f, claims, o)
	case o.finish:
		return c.finishMoves(cmd, cluster, f, claims, o)
	}
	p := f.planMove(claims, o.to)
	refused := p.refused()
	write := p.write
	if len(refused) > 0 {
		write = p.writePassedOver
	}
	if err := c.settings.print(cmd.OutOrStdout(), p, write); err != nil {
		return err
	}
	if len(refused) > 0 {
		return fmt.Errorf("nothing was changed: %s", strings.Join(refused, "\n"))
	}
	out := c.messages(cmd)
	if err := cluster.annotateAll(cmd.Context(), out, p.Changes, o.dryRun); err != nil || o.dryRun {
		return err
	}
	if err := writeNext(out, p.toStop()); err != nil {
		return err
	}
	if !o.wait {
		_, err := fmt.Fprintln(out, "progress: kubectl nodelvm moves -n "+printable.ShellWord(namespace))
		return err
	}
	left, err := cluster.wait(cmd.Context(), out, p)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d volumes did not move: %s", len(left), strings.Join(left, "; "))
	}
	return err
}

// messages is where a command prints what it does: beside the plan, unless that is for programs.
func (c *command) messages(cmd *cobra.Command) io.Writer {
	if c.settings.format == "json" || c.settings.format == "yaml" {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}

// wait follows the moves of a plan, and returns sentences about those that did not take place.
func (c *cluster) wait(ctx context.Context, w io.Writer, p *movePlan) (left []string, err error) {
	var list []*followed
	for _, g := range p.Groups {
		for _, claim := range g.Claims {
			if g.To != "" {
				list = append(list, &followed{namespace: g.Namespace, claim: claim.Name, to: g.To})
			}
		}
	}
	if err := c.follower().follow(ctx, w, list); err != nil {
		return nil, err
	}
	for _, x := range list {
		if x.left != "" {
			left = append(left, x.namespace+"/"+x.claim+": "+x.left)
		}
	}
	return left, nil
}

// asked returns the claims that the arguments name, or those of a pod.
func (f *moveFacts) asked(namespace string, args []string, podName string) (claims []*corev1.PersistentVolumeClaim, err error) {
	if podName != "" {
		return f.claimsOfPod(namespace, strings.TrimPrefix(podName, "pod/"))
	}
	for _, argument := range args {
		claim, err := f.claimNamed(namespace, argument)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(claims, claim) {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// claimsOfPod returns the claims of a pod with volumes of this driver, without those that are deleted with the pod.
func (f *moveFacts) claimsOfPod(namespace, name string) (claims []*corev1.PersistentVolumeClaim, err error) {
	pod := find(f.pods, func(pod *corev1.Pod) bool { return pod.Namespace == namespace && pod.Name == name })
	if pod == nil {
		return nil, fmt.Errorf("namespace %s has no pod %q that has not ended; choose the namespace with -n", namespace, name)
	}
	for _, name := range pending.ClaimNames(pod) {
		claim := f.claim(namespace, name)
		if claim != nil && f.isOurs(claim) && !isEphemeral(claim) {
			claims = append(claims, claim)
		}
	}
	if len(claims) == 0 {
		return nil, fmt.Errorf("pod %s/%s uses no claim with a volume of nodelvm that can move", namespace, name)
	}
	return claims, nil
}

// cancelMoves removes the annotations of the claims, and of those that move with them.
func (c *command) cancelMoves(cmd *cobra.Command, cluster *cluster, f *moveFacts, claims []*corev1.PersistentVolumeClaim, o *moveOptions) error {
	changes, refused := f.planCancel(claims)
	if len(refused) > 0 {
		return fmt.Errorf("nothing was changed: %s", strings.Join(refused, "\n"))
	}
	if err := cluster.annotateAll(cmd.Context(), cmd.OutOrStdout(), changes, o.dryRun); err != nil || o.dryRun {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "The volumes stay where they are, if no volume has switched nodes meanwhile: kubectl nodelvm moves")
	return err
}

// planCancel returns the changes that cancel the moves of claims, and sentences about those that cannot be cancelled.
func (f *moveFacts) planCancel(claims []*corev1.PersistentVolumeClaim) (changes []moveChange, refused []string) {
	seen := map[*corev1.PersistentVolumeClaim]bool{}
	for _, claim := range claims {
		to := claim.Annotations[api.AnnotationMoveTo]
		if why := f.mayNotCancel(claim, to); why != "" {
			refused = append(refused, why)
			continue
		}
		for _, member := range f.group(claim).Claims {
			if seen[member.claim] || member.claim.Annotations[api.AnnotationMoveTo] != to {
				continue
			}
			seen[member.claim] = true
			if why := f.mayNotCancel(member.claim, to); why != "" {
				refused = append(refused, why)
				continue
			}
			if change, needed := changeOf(member.claim, map[string]any{api.AnnotationMoveTo: nil, api.AnnotationMoveWith: nil}); needed {
				changes = append(changes, change)
			}
		}
	}
	return changes, refused
}

// mayNotCancel says why a claim's move to a node cannot be cancelled, and what to do instead; "": it can.
func (f *moveFacts) mayNotCancel(claim *corev1.PersistentVolumeClaim, to string) string {
	name := "claim " + claim.Namespace + "/" + claim.Name
	row, has := moveRowOf(claim, f.volume(claim), f.volumes != nil)
	pv := f.volume(claim)
	switch {
	case pv != nil && pv.Annotations[api.AnnotationHandedOver] != "" || has && row.Phase == api.MoveSwitching:
		return fmt.Sprintf("the volume of %s is node %s's since a moment ago, so the move cannot be cancelled: wait for its end, and move the volume back (--to %s)", name, row.To, printable.ShellWord(row.From))
	case has && row.Phase == api.MoveMoved:
		return fmt.Sprintf("the volume of %s is on node %s, so there is no move to cancel. To move it back: kubectl nodelvm move -n %s %s --to %s", name, row.To, claim.Namespace, claim.Name, printable.ShellWord(cmp.Or(row.From, "NODE")))
	case to == "" && pv != nil && pv.Annotations[api.AnnotationMovingTo] != "":
		return fmt.Sprintf("the move of %s is being cancelled already: kubectl nodelvm moves -n %s", name, claim.Namespace)
	case to == "" || !has:
		return name + " has no move to cancel"
	}
	return ""
}

// finishMoves has the former copies of claims deleted.
func (c *command) finishMoves(cmd *cobra.Command, cluster *cluster, f *moveFacts, claims []*corev1.PersistentVolumeClaim, o *moveOptions) error {
	changes, questions, refused := f.planFinish(claims)
	if len(refused) > 0 {
		return fmt.Errorf("nothing was changed: %s", strings.Join(refused, "\n"))
	}
	for _, q := range questions {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), printable.Text(q)); err != nil {
			return err
		}
	}
	if !o.dryRun {
		if err := confirm(cmd, o.yes, fmt.Sprintf("Delete %d former copies?", len(changes))); err != nil {
			return err
		}
	}
	return cluster.annotateAll(cmd.Context(), cmd.OutOrStdout(), changes, o.dryRun)
}

// planFinish returns the changes that have former copies deleted, with a sentence about each, and sentences about claims that have none.
func (f *moveFacts) planFinish(claims []*corev1.PersistentVolumeClaim) (changes []moveChange, questions, refused []string) {
	for _, claim := range claims {
		name, on := "claim "+claim.Namespace+"/"+claim.Name, f.nodeOf(claim)
		former := f.formerCopiesOf(claim, on)
		switch _, moving := f.isMoving(claim); {
		case moving:
			refused = append(refused, name+" is moving: the copy that it leaves can be deleted when it has moved")
			continue
		case len(former) == 0:
			refused = append(refused, fmt.Sprintf("nothing shows a former copy of the volume of %s. If a node has one, set the annotation %s of the claim to that node", name, api.AnnotationMoveFinish))
			continue
		}
		used := slices.ContainsFunc(f.users(claim), func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == on })
		question := fmt.Sprintf("%s: the copy on node %s will be deleted. The volume is on node %s", name, former[0], cmp.Or(on, "another node"))
		if !used {
			question += ", where no pod runs with it, so no program has read its content yet"
		}
		if len(former) > 1 {
			question += ". Repeat the command then, for the copy on node " + strings.Join(former[1:], ", ")
		}
		questions = append(questions, question)
		change := moveChange{Namespace: claim.Namespace, Claim: claim.Name, Annotations: map[string]any{api.AnnotationMoveFinish: former[0]}, claim: claim}
		if claim.Annotations[api.AnnotationMoveTo] == on { // else a claim that is restored from a backup would ask for that node
			for _, key := range []string{api.AnnotationMoveTo, api.AnnotationMoveWith} {
				if _, has := claim.Annotations[key]; has {
					change.Annotations[key] = nil
				}
			}
		}
		changes = append(changes, change)
	}
	return changes, questions, refused
}

// formerCopiesOf returns the nodes with a former copy of a claim's volume: those that report one, or else the one that the claim's status names. A volume that
// moves again leaves another one.
func (f *moveFacts) formerCopiesOf(claim *corev1.PersistentVolumeClaim, on string) []string {
	if nodes := formerCopies(f.answers)[claim.Spec.VolumeName]; len(nodes) > 0 {
		return nodes
	}
	if s, ok := api.MoveStatusOf(claim.Annotations); ok && s.Phase == api.MoveMoved && s.From != "" && s.From != on && answerOf(f.answers, s.From) == nil {
		return []string{s.From}
	}
	return nil
}
