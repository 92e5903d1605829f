package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

func (c *command) movesCommand() *cobra.Command {
	cmd := rowsCommand(c, "moves", "List the moves of volumes to other nodes: phase, progress, and what they wait for; ended ones for a day, or while a node has the former copy",
		func(ctx context.Context, cluster *cluster, namespace string) ([]moveRow, *table, error) {
			rows, err := cluster.moveRows(ctx, namespace)
			return rows, moveTable(rows, time.Now(), c.settings.wide()), err
		})
	watch, list := false, cmd.RunE
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the progress of the moves that have not ended, until they end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return list(cmd, args)
		}
		return c.onCluster(c.watchMoves)(cmd, args)
	}
	return cmd
}

// watchMoves prints a line whenever a move that has begun changes.
func (c *command) watchMoves(cmd *cobra.Command, cluster *cluster, _ []string) error {
	if c.settings.format != "" {
		return errors.New("--watch prints lines, and goes with no --output")
	}
	namespace, err := c.namespace(cmd)
	if err != nil {
		return err
	}
	rows, err := cluster.moveRows(cmd.Context(), namespace)
	if err != nil {
		return err
	}
	moving := watched(rows)
	if len(moving) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "No volume of nodelvm is moving.")
		return err
	}
	return cluster.follower().follow(cmd.Context(), cmd.OutOrStdout(), moving)
}

// watched are the moves of the rows that have not ended.
func watched(rows []moveRow) (list []*followed) {
	for _, r := range rows {
		if namespace, claim, _ := strings.Cut(r.Claim, "/"); !r.ended() {
			list = append(list, &followed{namespace: namespace, claim: claim, to: r.To})
		}
	}
	return list
}

// moveRows reads the moves of a namespace, or of all. Without the right to read PersistentVolumes the rows are what the claims say.
func (c *cluster) moveRows(ctx context.Context, namespace string) ([]moveRow, error) {
	claims, err := list[corev1.PersistentVolumeClaim](ctx, c.in(namespace, "persistentvolumeclaims"))
	if err != nil {
		return nil, inOneNamespace(err)
	}
	pods, err := c.pods(ctx, namespace)
	if err != nil {
		return nil, inOneNamespace(err)
	}
	volumes, err := c.volumes(ctx)
	known := err == nil
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	drivers, err := c.drivers(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	rows := moveRowsOf(claims, volumes, known, usersOf(pods), c.answers(ctx, drivers, nil), time.Now())
	return slices.DeleteFunc(rows, func(r moveRow) bool { return namespace != "" && !strings.HasPrefix(r.Claim, namespace+"/") }), nil
}

// endedShown is how long the list has a move that has ended.
const endedShown = 24 * time.Hour

// moveRowsOf builds the rows, ordered by claim.
func moveRowsOf(claims []corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume, known bool, users map[string][]user, answers []answer, now time.Time) []moveRow {
	byName := map[string]*corev1.PersistentVolume{}
	for i := range volumes {
		byName[volumes[i].Name] = &volumes[i]
	}
	former := formerCopies(answers)
	rows := []moveRow{}
	for i := range claims {
		claim := &claims[i]
		pv := byName[claim.Spec.VolumeName]
		row, has := moveRowOf(claim, pv, known)
		row.Former = former[claim.Spec.VolumeName]
		if !has && len(row.Former) > 0 { // its annotations are gone
			has, row.Phase, row.From, row.To, row.Text = true, api.MoveMoved, row.Former[0], "", "the former copy is there"
			if pv != nil {
				row.To = pending.NodeOf(pv)
			}
		}
		if !has || row.ended() && len(row.Former) == 0 && now.Sub(row.Changed) > endedShown {
			continue
		}
		for _, u := range users[row.Claim] {
			row.Pods = append(row.Pods, u.name)
		}
		rows = append(rows, row)
	}
	rows = append(rows, withoutClaim(rows, answers)...)
	slices.SortFunc(rows, func(a, b moveRow) int { return strings.Compare(a.Claim, b.Claim) })
	return rows
}

// formerCopies returns the nodes that report a former copy of a volume, by its name.
func formerCopies(answers []answer) map[string][]string {
	nodes := map[string][]string{}
	for _, a := range answers {
		for _, v := range a.page.Volumes {
			if a.err == nil && v.Name != "" && v.State == string(lvm.StateMoved) && v.Cluster == a.page.Cluster && !slices.Contains(nodes[v.Name], a.node) {
				nodes[v.Name] = append(nodes[v.Name], a.node)
			}
		}
	}
	return nodes
}

// withoutClaim returns rows of former copies whose claims no row has: these are deleted.
func withoutClaim(rows []moveRow, answers []answer) (more []moveRow) {
	listed := map[string]bool{}
	for _, r := range rows {
		listed[r.Volume] = true
	}
	for _, a := range answers {
		for _, v := range a.page.Volumes {
			if a.err != nil || v.State != string(lvm.StateMoved) || v.Cluster != a.page.Cluster || listed[v.Name] {
				continue
			}
			more = append(more, moveRow{Claim: v.Claim, From: a.node, Phase: api.MoveMoved, Size: v.Size, Volume: v.Name, Former: []string{a.node}, gone: true,
				Text: fmt.Sprintf("no claim has this volume any more. To use the former copy: docs/howto/move.md; to delete it, on %s: lvremove %s/%s", a.node, printable.ShellWord(string(v.Group)), printable.ShellWord(v.LV))})
		}
	}
	return more
}

func moveTable(rows []moveRow, now time.Time, wide bool) *table {
	t := &table{header: []string{"CLAIM", "FROM", "TO", "PHASE", "COPIED", "AGE", "MESSAGE"}, none: "No moves of nodelvm's volumes."}
	if wide {
		t.header = append(t.header[:len(t.header)-1], "SIZE", "PODS", "PERSISTENTVOLUME", "FORMER COPY ON", "MESSAGE")
	}
	for _, r := range rows {
		row := []string{r.Claim, r.From, r.To, r.Phase, r.progress(), age(r.Changed, now)}
		if wide {
			row = append(row, r.Size.String(), strings.Join(r.Pods, ","), r.Volume, strings.Join(r.Former, ","))
		}
		t.add(append(row, r.Text)...)
	}
	return t
}
