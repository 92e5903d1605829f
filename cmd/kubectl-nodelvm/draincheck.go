package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// leftRow is a volume or snapshot that stays on a node when the node is drained.
type leftRow struct {
	Kind   string     `json:"kind"` // claim, volume (without a claim), snapshot, orphan, and of moves: former copy, copy
	Name   string     `json:"name"`
	Pods   []string   `json:"pods,omitempty"`
	Volume string     `json:"volume"` // group/volume, or its handle where the node does not answer
	Size   *lvm.Bytes `json:"size,omitempty"`
	Note   string     `json:"note"`
}

func (c *command) drainCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "drain-check NODE",
		Short:             "List the data that stays on a node when it is drained; exit status 1 if there is any",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNode,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, args []string) error {
			rows, incomplete, err := cluster.leftOn(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if incomplete != nil {
				cmd.PrintErrf("note: the node's report is incomplete; the list has what the API server and the node report: %s\n", printable.Text(incomplete.Error()))
			}
			if err := printRows(&c.settings, cmd.OutOrStdout(), rows, leftTable(rows, args[0], incomplete)); err != nil {
				return err
			}
			return drainable(rows, incomplete)
		}),
	}
}

// errNoDriverThere explains why a node's disks are unknown. Such a node may never have had a driver.
var errNoDriverThere = errors.New("no driver pod runs on the node")

// errDriverLeft is the same of a node that had one: the kubelet has set its label when it registered the driver.
var errDriverLeft = errors.New("no driver pod runs on the node, and its label " + api.TopologyKey + " says that one did: former copies, orphans and other data may be on its disks. Bring the pod back; if you know that nothing is there, remove the label")

// drainable returns nil if no data stays on the node, and an error if an incomplete report leaves that open.
func drainable(rows []leftRow, incomplete error) error {
	switch {
	case len(rows) > 0:
		return errFound
	case incomplete != nil && !errors.Is(incomplete, errNoDriverThere):
		return fmt.Errorf("cannot determine whether data stays on the node: %w", incomplete)
	}
	return nil
}

// completeNode completes the first argument with the nodes that have the driver, if it can list them.
func (c *command) completeNode(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	cluster, err := c.connect()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pods, err := cluster.drivers(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, pod := range pods {
		if node := pod.Spec.NodeName; node != "" && !slices.Contains(names, node) {
			names = append(names, node)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// leftOn lists what stays on the node; incomplete says why its disks may hold more.
func (c *cluster) leftOn(ctx context.Context, node string) (rows []leftRow, incomplete, err error) {
	volumes, err := c.volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	contents, _, err := c.contents(ctx)
	if err != nil {
		return nil, nil, err
	}
	known := slices.ContainsFunc(volumes, func(pv corev1.PersistentVolume) bool { return pending.NodeOf(&pv) == node })
	var object corev1.Node
	if !known { // a deleted node may have left volumes; without volumes the node must exist
		if err := c.get(ctx, "/api/v1/nodes/"+node, &object); err != nil {
			return nil, nil, err
		}
	}
	pods, err := c.pods(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	drivers, err := c.drivers(ctx)
	if err != nil {
		return nil, nil, err
	}
	drivers = slices.DeleteFunc(drivers, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
	answers := c.answers(ctx, drivers, nil)
	incomplete = incompleteOf(answers)
	if errors.Is(incomplete, errNoDriverThere) && object.Labels[api.TopologyKey] != "" {
		incomplete = errDriverLeft
	}
	return leftRows(node, volumes, usersOf(pods), contents, answers), incomplete, nil
}

// incompleteOf returns why the answers of a node's driver pods may lack a volume, or nil if each lists all that is on the disks.
func incompleteOf(answers []answer) error {
	for _, a := range answers {
		if why := a.incomplete(); why != "" {
			return errors.New(why)
		}
	}
	if len(answers) == 0 {
		return errNoDriverThere
	}
	return nil
}

// leftRows lists claims, volumes without one, snapshots, and orphans on the disks. The answers are those of the node's driver pods.
func leftRows(node string, volumes []corev1.PersistentVolume, users map[string][]user, contents []content, answers []answer) []leftRow {
	rows, listed := []leftRow{}, map[string]bool{}
	answers = slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return a.err != nil })
	onDisk := map[string]string{} // group/volume by handle
	for _, a := range answers {
		for _, v := range a.page.Volumes {
			onDisk[v.ID] = string(v.Group) + "/" + v.LV
		}
		for _, sn := range a.page.Snapshots {
			onDisk[sn.ID] = string(sn.Group) + "/" + sn.LV
		}
	}
	for _, pv := range volumes {
		handle, on := pv.Spec.CSI.VolumeHandle, pending.NodeOf(&pv)
		if on == node || on == "" && onDisk[handle] != "" {
			listed[handle] = true
			row := leftVolume(&pv, users)
			row.Volume = cmp.Or(onDisk[handle], handle)
			rows = append(rows, row)
		}
	}
	for _, item := range contents {
		handle := item.Status.SnapshotHandle
		if item.Labels[api.LabelManagedBy] == node || onDisk[handle] != "" {
			listed[handle] = true
			of := item.Spec.VolumeSnapshotRef
			rows = append(rows, leftRow{Kind: "snapshot", Name: of.Namespace + "/" + of.Name, Volume: cmp.Or(onDisk[handle], handle, item.Name),
				Note: "on the disks of this node alone"})
		}
	}
	for _, a := range answers {
		rows = append(rows, leftUnlisted(a, listed)...)
	}
	slices.SortStableFunc(rows, func(a, b leftRow) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return rows
}

func leftVolume(pv *corev1.PersistentVolume, users map[string][]user) leftRow {
	quantity := pv.Spec.Capacity[corev1.ResourceStorage]
	size := lvm.Bytes(quantity.Value())
	row := leftRow{Kind: "claim", Name: claimOf(pv), Size: &size, Note: "not in use"}
	if row.Name == "" || pv.Status.Phase != corev1.VolumeBound { // a claim that it names may not exist
		return leftRow{Kind: "volume", Name: pv.Name, Size: &size, Note: "not bound to a claim (" + string(cmp.Or(pv.Status.Phase, corev1.VolumePending)) + ")"}
	}
	for _, u := range users[row.Name] {
		row.Pods = append(row.Pods, u.name)
		row.Note = "in use; after the drain its pod waits for this node"
		if u.ephemeral {
			row.Note = "ephemeral: deleted with its pod"
		}
	}
	return row
}

// leftUnlisted returns the volumes and snapshots on the node's disks that are not listed yet, except deleted volumes, and lists them.
func leftUnlisted(a answer, listed map[string]bool) (rows []leftRow) {
	const note = "only on the disks: see kubectl nodelvm orphans"
	for _, v := range a.page.Volumes {
		if !listed[v.ID] && v.State != string(lvm.StateDeleting) {
			listed[v.ID] = true
			row := leftRow{Kind: "orphan", Name: cmp.Or(v.Claim, v.Name), Volume: string(v.Group) + "/" + v.LV, Size: &v.Size, Note: note}
			if of, is := sidesOfMoves[lvm.VolumeState(v.State)]; is {
				row.Kind, row.Note = of.kind, of.note
			}
			rows = append(rows, row)
		}
	}
	for _, sn := range a.page.Snapshots {
		if !listed[sn.ID] {
			listed[sn.ID] = true
			row := leftRow{Kind: "orphan", Name: sn.Name, Volume: string(sn.Group) + "/" + sn.LV, Size: &sn.Size, Note: note}
			if isMember(sn) && !a.isOrphan(sn.ID) {
				row.Kind, row.Note = "snapshot", "a part of a group snapshot, on the disks of this node alone"
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// sidesOfMoves are the volumes on a node's disks that are not their claims' volume, because of a move.
var sidesOfMoves = map[lvm.VolumeState]struct{ kind, note string }{
	lvm.StateMoved:     {"former copy", "the volume moved to another node; to delete this copy: kubectl nodelvm move CLAIM --finish"},
	lvm.StateReceiving: {"copy", "not complete: a volume moves to this node (see kubectl nodelvm moves), or a snapshot is restored on it"},
	lvm.StateReceived:  {"copy", "not the claim's volume yet: it moves to this node (see kubectl nodelvm moves), or is restored on it"},
}

func leftTable(rows []leftRow, node string, incomplete error) *table {
	t := &table{header: []string{"KIND", "NAME", "POD", "VOLUME", "SIZE", "NOTE"}, none: "No data of nodelvm stays on " + node + "."}
	if incomplete != nil {
		t.none = "The API server has no volume of nodelvm on " + node + "; the node did not report what is on its disks."
	}
	for _, r := range rows {
		size := ""
		if r.Size != nil {
			size = r.Size.String()
		}
		t.add(r.Kind, r.Name, strings.Join(r.Pods, ","), r.Volume, size, r.Note)
	}
	return t
}
