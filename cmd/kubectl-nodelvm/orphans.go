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
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// orphanRow is a volume or a snapshot on a node's disks without an object in this cluster.
type orphanRow struct {
	Kind     string          `json:"reason"`
	Node     string          `json:"node"`
	Volume   string          `json:"volume"` // group/volume
	Snapshot bool            `json:"snapshot"`
	Size     inventory.Bytes `json:"size"`
	Claim    string          `json:"formerClaim,omitempty"`
	Why      string          `json:"message"`
	Created  time.Time       `json:"created,omitzero"`
	Cluster  string          `json:"clusterID"`
	Handle   string          `json:"handle"`
}

// Kinds of orphans, and the words for them, are those of the driver's own `nodelvm orphans`.
const (
	kindOrphan    = "unreferenced"  // no object refers to it
	kindAbandoned = "abandoned"     // its claim uses another volume, or was released
	kindForeign   = "other-cluster" // another cluster created it
	kindUnknown   = "unknown"       // the node reports nothing, or not everything
)

func (c *command) orphansCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "orphans",
		Short: "List the volumes and snapshots on the nodes that no object in the cluster refers to; removes nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			rows, err := cluster.orphanRows(cmd.Context())
			if err != nil {
				return err
			}
			return c.settings.print(cmd.OutOrStdout(), rows, func(w io.Writer, s screen) error {
				return orphanTable(rows, c.settings.wide()).write(w, s.width, s.colour)
			})
		},
	}
}

// orphanRows asks the nodes first, and the API afterwards, the claims before their volumes: a volume whose claim still waits is being
// made, and one whose claim is bound by then has its object. What seems to be an orphan is looked for on its node once more: an
// object that is gone may have gone with its volume.
func (c *cluster) orphanRows(ctx context.Context) ([]orphanRow, error) {
	drivers, err := c.driversOrNone(ctx)
	if err != nil {
		return nil, err
	}
	answers := c.answers(ctx, drivers, nil)
	var claims corev1.PersistentVolumeClaimList
	if err := c.get(ctx, "/api/v1/persistentvolumeclaims", &claims); err != nil {
		return nil, err
	}
	volumes, err := c.volumes(ctx)
	if err != nil {
		return nil, err
	}
	contents, _, err := c.contents(ctx)
	if err != nil {
		return nil, err
	}
	rows := newOrphanClassifier(volumes, contents, claims.Items).rows(answers)
	suspect := map[string]bool{} // nodes
	for _, r := range rows {
		suspect[r.Node] = suspect[r.Node] || r.Handle != ""
	}
	drivers = slices.DeleteFunc(drivers, func(pod corev1.Pod) bool { return !suspect[pod.Spec.NodeName] })
	return stillThere(rows, c.answers(ctx, drivers, nil)), nil
}

// stillThere leaves out what a later answer of its node does not have any more, or is removing. A node that does not answer again
// proves nothing.
func stillThere(rows []orphanRow, later []answer) []orphanRow {
	answered, there := map[string]bool{}, map[string]bool{}
	for _, a := range later {
		answered[a.node] = answered[a.node] || a.err == nil && a.gap() == ""
		for _, v := range a.page.Volumes {
			there[a.node+" "+v.ID] = v.State == string(lvm.StateReady)
		}
		for _, sn := range a.page.Snapshots {
			there[a.node+" "+sn.ID] = sn.State == string(lvm.StateReady)
		}
	}
	return slices.DeleteFunc(rows, func(r orphanRow) bool { return r.Handle != "" && answered[r.Node] && !there[r.Node+" "+r.Handle] })
}

// orphanClassifier knows which volumes and snapshots have objects in the cluster.
type orphanClassifier struct {
	known     map[string]bool // handles of volumes and snapshots
	abandoned map[string]bool // handles
	snapshots map[string]bool // names of snapshots that are, or are being, taken
	claims    map[string]*corev1.PersistentVolumeClaim
	making    map[string]bool // names of volumes that claims wait for
}

func newOrphanClassifier(volumes []corev1.PersistentVolume, contents []content, claims []corev1.PersistentVolumeClaim) *orphanClassifier {
	o := &orphanClassifier{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]*corev1.PersistentVolumeClaim{}, map[string]bool{}}
	for _, pv := range volumes {
		o.known[pv.Spec.CSI.VolumeHandle] = true
		released := pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
		o.abandoned[pv.Spec.CSI.VolumeHandle] = pv.Annotations[api.AnnotationAbandonedSince] != "" && released // one that was bound again keeps the note
	}
	for _, item := range contents {
		o.known[item.Status.SnapshotHandle], o.known[item.Spec.Source.SnapshotHandle] = true, true
		o.snapshots[api.PrefixSnapshot+string(item.Spec.VolumeSnapshotRef.UID)] = true
	}
	for i, claim := range claims {
		o.claims[claim.Namespace+"/"+claim.Name] = &claims[i]
		if claim.Spec.VolumeName == "" {
			o.making[api.PrefixVolume+string(claim.UID)] = true
		}
	}
	return o
}

// rows lists the orphans, ordered by node.
func (o *orphanClassifier) rows(answers []answer) []orphanRow {
	rows := []orphanRow{}
	for _, a := range answers {
		if gap := a.gap(); gap != "" {
			rows = append(rows, orphanRow{Kind: kindUnknown, Node: a.node, Why: gap})
		}
		if a.err != nil {
			continue
		}
		for _, v := range a.page.Volumes {
			if kind, why := o.volume(a, v); kind != "" {
				rows = append(rows, orphanRow{Kind: kind, Why: why, Node: a.node, Volume: v.Group + "/" + v.LV, Size: v.Size, Claim: v.Claim,
					Created: v.Created, Cluster: v.Cluster, Handle: v.ID})
			}
		}
		for _, sn := range a.page.Snapshots {
			if kind, why := o.snapshot(a, sn); kind != "" {
				rows = append(rows, orphanRow{Kind: kind, Why: why, Node: a.node, Volume: sn.Group + "/" + sn.LV, Snapshot: true, Size: sn.Size,
					Created: sn.Created, Cluster: sn.Cluster, Handle: sn.ID})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b orphanRow) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Volume, b.Volume))
	})
	return rows
}

// volume returns the kind of a volume and the reason; "" for one that is not an orphan.
func (o *orphanClassifier) volume(a answer, v inventory.Volume) (kind, why string) {
	switch claim := o.claims[v.Claim]; {
	case v.State != string(lvm.StateReady):
		return "", ""
	case o.abandoned[v.ID]:
		return kindAbandoned, "its claim was released, and its PersistentVolume is retained"
	case v.Cluster != a.page.Cluster:
		return kindForeign, fmt.Sprintf("created by the cluster %q", v.Cluster)
	case o.known[v.ID] || o.making[v.Name]:
		return "", ""
	case claim != nil && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != v.Name:
		return kindAbandoned, "its claim now uses the volume " + claim.Spec.VolumeName
	}
	return kindOrphan, "no PersistentVolume refers to it"
}

// snapshot does the same for a snapshot.
func (o *orphanClassifier) snapshot(a answer, sn inventory.Snapshot) (kind, why string) {
	switch {
	case sn.State != string(lvm.StateReady):
		return "", ""
	case sn.Cluster != a.page.Cluster:
		return kindForeign, fmt.Sprintf("created by the cluster %q", sn.Cluster)
	case o.known[sn.ID] || o.snapshots[sn.Name]:
		return "", ""
	}
	return kindOrphan, "no VolumeSnapshotContent refers to it"
}

func orphanTable(rows []orphanRow, wide bool) *table {
	t := &table{header: []string{"NODE", "REASON", "VOLUME", "SIZE", "FORMER CLAIM", "DETAILS"}, none: "No orphans: each volume and snapshot on the nodes has its object in the cluster."}
	if wide {
		t.header = append(t.header, "CREATED", "CLUSTER", "HANDLE")
	}
	for _, r := range rows {
		size, created := r.Size.String(), r.Created.UTC().Format(time.DateOnly)
		if r.Kind == kindUnknown {
			size = "-"
		}
		if r.Created.IsZero() {
			created = "-"
		}
		row := []cell{{text: r.Node}, {text: r.Kind}, {text: orDash(r.Volume)}, {text: size}, {text: orDash(r.Claim)}, {text: r.Why}}
		if wide {
			row = append(row, cell{text: created}, cell{text: orDash(r.Cluster)}, cell{text: orDash(r.Handle)})
		}
		t.add(row...)
	}
	return t
}
