package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/terminal"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// volumeRow is what `volumes` shows about one PersistentVolume, or about a deleted volume that is being wiped.
type volumeRow struct {
	Claim  string     `json:"claim,omitempty"` // namespace/name
	Pods   []string   `json:"pods,omitempty"`  // that use the claim
	Node   string     `json:"node"`
	Volume string     `json:"logicalVolume,omitempty"` // group/volume, as LVM names it
	Layout string     `json:"layout,omitempty"`
	Pool   string     `json:"thinPool,omitempty"`
	Size   lvm.Bytes  `json:"size"`
	Used   *lvm.Bytes `json:"used,omitempty"`             // of a thin volume
	Health []string   `json:"status"`                     // "ok", or what is wrong
	Text   []string   `json:"messages,omitempty"`         // the same in sentences
	PV     string     `json:"persistentVolume,omitempty"` // empty if it is deleted
	Handle string     `json:"handle"`

	Class        string             `json:"storageClass,omitempty"`
	Created      time.Time          `json:"created,omitzero"`
	FileSystem   *report.FileSystem `json:"fileSystem,omitempty"` // of a mounted volume
	LastSnapshot time.Time          `json:"lastSnapshot,omitzero"`
	Encryption   string             `json:"encryption,omitempty"` // "luks2"; empty: none
	KeySecret    string             `json:"keySecret,omitempty"`  // namespace/name of the Secret that opens an encrypted volume
}

func (c *command) volumesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "volumes",
		Aliases: []string{"volume", "vol"},
		Short:   "List the volumes with claim, pods, node, class, size, use, age and status (--namespace: only those of one namespace)",
		Args:    cobra.NoArgs,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, _ []string) error {
			namespace, err := c.namespace(cmd)
			if err != nil {
				return err
			}
			rows, err := cluster.volumeRows(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			return c.printTable(cmd, rows, volumeTable(rows, time.Now(), c.settings.wide()))
		}),
	}
}

// errNoDriver is returned for a cluster without nodelvm.
var errNoDriver = errors.New("no pod of nodelvm is in this cluster (a privileged one with the labels " + driverPods + "): install the chart, or check whether its DaemonSet matches nodes")

func (c *cluster) driversOrNone(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := c.drivers(ctx)
	if err == nil && len(pods) == 0 {
		err = errNoDriver
	}
	return pods, err
}

func (c *cluster) volumeRows(ctx context.Context, namespace string) ([]volumeRow, error) {
	volumes, err := c.volumes(ctx)
	if apierrors.IsForbidden(err) && namespace != "" {
		return c.claimRows(ctx, namespace)
	}
	if err != nil {
		return nil, inOneNamespace(err)
	}
	users, err := c.pods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	drivers, err := c.drivers(ctx)
	if err != nil {
		return nil, err
	}
	volumes = slices.DeleteFunc(volumes, func(pv corev1.PersistentVolume) bool {
		return namespace != "" && !strings.HasPrefix(claimOf(&pv), namespace+"/")
	})
	rows := volumeRowsOf(volumes, usersOf(users), c.answers(ctx, drivers, nil))
	return slices.DeleteFunc(rows, func(r volumeRow) bool { return namespace != "" && !strings.HasPrefix(r.Claim, namespace+"/") }), nil
}

// volumeRowsOf builds the rows from PersistentVolumes and the nodes' answers, ordered by claim.
func volumeRowsOf(volumes []corev1.PersistentVolume, users map[string][]user, answers []answer) []volumeRow {
	rows := []volumeRow{}
	for _, pv := range volumes {
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		row := volumeRow{Claim: claimOf(&pv), Node: pending.NodeOf(&pv), PV: pv.Name, Handle: pv.Spec.CSI.VolumeHandle, Size: lvm.Bytes(size.Value()),
			Class: pv.Spec.StorageClassName, Created: pv.CreationTimestamp.Time, Encryption: pv.Spec.CSI.VolumeAttributes[api.AttributeEncryption], KeySecret: keySecretOf(&pv)}
		if pv.Status.Phase == corev1.VolumeBound {
			for _, u := range users[row.Claim] {
				row.Pods = append(row.Pods, u.name)
			}
		}
		i := slices.IndexFunc(answers, func(a answer) bool { return a.node == row.Node })
		switch {
		case row.Node == "":
			row.sick(unknown, "its node affinity does not name one node by "+api.TopologyKey+", so the state of the volume is unknown")
		case i < 0:
			row.sick(noDriver, "no driver pod runs on node "+row.Node+", so the state of the volume is unknown")
		case answers[i].err != nil:
			row.sick(unknown, "the node did not answer: "+answers[i].err.Error())
		default:
			row.fill(&pv, answers[i])
		}
		switch phase := cmp.Or(pv.Status.Phase, corev1.VolumePending); phase {
		case corev1.VolumeBound:
		case corev1.VolumeReleased, corev1.VolumeFailed:
			row.sick(strings.ToLower(string(phase)), cmp.Or(pv.Status.Message, "its claim is deleted; the volume is retained, or waits for deletion"))
		default:
			row.sick(strings.ToLower(string(phase)), "no claim is bound to it")
		}
		if len(row.Health) == 0 {
			row.Health = []string{healthy}
		}
		rows = append(rows, row)
	}
	rows = append(rows, wipingRows(rows, answers)...)
	slices.SortFunc(rows, func(a, b volumeRow) int {
		return cmp.Or(strings.Compare(a.Claim, b.Claim), strings.Compare(a.PV, b.PV))
	})
	return rows
}

// wipingRows returns rows for deleted volumes that still occupy space and no longer have a PersistentVolume.
func wipingRows(rows []volumeRow, answers []answer) (wiping []volumeRow) {
	for _, a := range answers {
		for _, v := range a.page.Volumes {
			known := slices.ContainsFunc(rows, func(r volumeRow) bool { return r.Handle == v.ID })
			if a.err != nil || known || v.State != string(lvm.StateDeleting) || v.Cluster != a.page.Cluster {
				continue
			}
			wiping = append(wiping, volumeRow{Claim: v.Claim, Node: a.node, Volume: string(v.Group) + "/" + v.LV, Layout: v.Layout, Pool: v.Pool, Size: v.Size,
				Handle: v.ID, Class: v.Class, Created: v.Created, Encryption: v.Encryption, Health: []string{beingWiped}, Text: []string{"deleted; its space is free when it is wiped"}})
		}
	}
	return wiping
}

// Words for a volume's health, in addition to conditions and states.
const (
	healthy    = "ok"
	noDriver   = "no driver"
	unknown    = "unknown"
	beingWiped = "wiping"
)

func (r *volumeRow) sick(word, text string) {
	if !slices.Contains(r.Health, word) {
		r.Health = append(r.Health, word)
	}
	r.Text = append(r.Text, text)
}

// fill adds what the volume's node reports.
func (r *volumeRow) fill(pv *corev1.PersistentVolume, a answer) {
	i := slices.IndexFunc(a.page.Volumes, func(v report.Volume) bool { return v.ID == r.Handle })
	for _, f := range a.page.Conditions {
		if i < 0 && f.Volume == r.Handle {
			r.sick(f.Type, f.Text)
		}
	}
	if i < 0 && len(r.Health) > 0 {
		return
	}
	if gap := a.gap(); i < 0 && gap != "" {
		r.sick(unknown, "its node does not report it, and its report is incomplete: "+gap)
		return
	}
	if i < 0 {
		is := absenceOf(pv, a)
		r.sick(is.status, is.what)
		return
	}
	v := a.page.Volumes[i]
	if is, renamed := renamedOf(pv, a); renamed {
		r.sick(is.status, is.what)
	}
	r.Volume, r.Layout, r.Pool, r.Size, r.Used = string(v.Group)+"/"+v.LV, v.Layout, v.Pool, v.Size, v.Used
	r.FileSystem, r.LastSnapshot, r.Encryption = v.FileSystem, v.LastSnapshot, cmp.Or(r.Encryption, v.Encryption)
	if r.Created.IsZero() {
		r.Created = v.Created
	}
	if f := r.FileSystem; f != nil && f.Error != "" {
		r.sick("file system unknown", f.Error)
	}
	if v.State != string(lvm.StateReady) {
		r.sick(v.State, "the volume has the state "+v.State)
	}
	for _, f := range a.page.Conditions {
		if f.Volume == v.ID || f.Volume == "" && f.Group == v.Group && (f.GroupUUID == "" || strings.HasPrefix(v.ID, string(f.GroupUUID)+"/")) {
			r.sick(f.Type, f.Text)
		}
	}
}

// fillCells returns the use of a file system's space and inodes. Space that only root can use counts as used.
func (r *volumeRow) fillCells() (space, inodes terminal.Cell) {
	f := r.FileSystem
	if f == nil || f.Error != "" {
		return terminal.Cell{Text: "-"}, terminal.Cell{Text: "-"}
	}
	return terminal.LevelCell(float64(f.Size-f.Available), float64(f.Size)), terminal.LevelCell(float64(f.InodesUsed), float64(f.Inodes))
}

// encryptionCell returns how a volume is encrypted, and the Secret with its key.
func (r *volumeRow) encryptionCell() string {
	if r.Encryption == "" || r.KeySecret == "" {
		return orDash(r.Encryption)
	}
	return r.Encryption + " (" + r.KeySecret + ")"
}

func volumeTable(rows []volumeRow, now time.Time, wide bool) *terminal.Table {
	t := &terminal.Table{Header: []string{"CLAIM", "POD", "NODE", "CLASS", "SIZE", "FS USED", "INODES", "THIN", "AGE", "SNAPSHOT", "STATUS"}, None: "No volumes of nodelvm."}
	if wide {
		t.Header = append(t.Header, "FS TYPE", "ENCRYPTION", "VOLUME", "LAYOUT", "THIN POOL", "PERSISTENTVOLUME", "HANDLE")
	}
	for _, r := range rows {
		health, thin := terminal.Cell{Text: strings.Join(r.Health, ","), Tone: terminal.Good}, terminal.Cell{Text: "-"}
		if r.Used != nil {
			thin = terminal.LevelCell(float64(*r.Used), float64(r.Size))
			thin.Tone = terminal.Plain // a thin volume may be full: its pool must not
		}
		if !slices.Equal(r.Health, []string{healthy}) && !slices.Equal(r.Health, []string{beingWiped}) {
			health.Tone = terminal.Bad
		}
		space, inodes := r.fillCells()
		row := []terminal.Cell{{Text: orDash(r.Claim)}, {Text: orDash(strings.Join(r.Pods, ","))}, {Text: orDash(r.Node)}, {Text: orDash(r.Class)},
			{Text: r.Size.String()}, space, inodes, thin, {Text: age(r.Created, now)}, {Text: age(r.LastSnapshot, now)}, health}
		if wide {
			fsType := ""
			if r.FileSystem != nil {
				fsType = r.FileSystem.Type
			}
			row = append(row, terminal.Cell{Text: orDash(fsType)}, terminal.Cell{Text: r.encryptionCell()}, terminal.Cell{Text: orDash(r.Volume)}, terminal.Cell{Text: orDash(r.Layout)}, terminal.Cell{Text: orDash(r.Pool)},
				terminal.Cell{Text: orDash(r.PV)}, terminal.Cell{Text: orDash(r.Handle)})
		}
		t.Add(row...)
	}
	return t
}

// age returns the time since at as kubectl prints it, or "-" if at is zero.
func age(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(at))
}
