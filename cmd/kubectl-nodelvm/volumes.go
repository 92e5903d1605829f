package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodelvm/nodelvm/api"
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
	Status []string   `json:"status"`                     // "ok", or what is wrong
	Text   []string   `json:"messages,omitempty"`         // the same in sentences
	PV     string     `json:"persistentVolume,omitempty"` // empty if it is deleted
	Handle string     `json:"handle"`

	Class        string             `json:"storageClass,omitempty"`
	Created      time.Time          `json:"created,omitzero"`
	FileSystem   *report.FileSystem `json:"fileSystem,omitempty"` // of a mounted volume
	LastSnapshot time.Time          `json:"lastSnapshot,omitzero"`
	Encryption   string             `json:"encryption,omitempty"` // "luks2"; empty: none
	KeySecret    string             `json:"keySecret,omitempty"`  // namespace/name of the Secret that opens an encrypted volume
	IOLimits     *report.IOLimits   `json:"ioLimits,omitempty"`
}

func (r volumeRow) object() (kind, name string) { return "persistentvolume", r.PV }

func (c *command) volumesCommand() *cobra.Command {
	cmd := rowsCommand(c, "volumes", "List the volumes with claim, pods, node, class, size, use, age and status (--namespace: only those of one namespace)",
		func(ctx context.Context, cluster *cluster, namespace string) ([]volumeRow, *table, error) {
			rows, err := cluster.volumeRows(ctx, namespace)
			return rows, volumeTable(rows, time.Now(), c.settings.wide()), err
		})
	cmd.Aliases = []string{"volume", "vol"}
	return cmd
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

// allAnswers reads the status page of each node, without the capacity for classes.
func (c *cluster) allAnswers(ctx context.Context) ([]answer, error) {
	drivers, err := c.driversOrNone(ctx)
	return c.answers(ctx, drivers, nil), err
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
		a := answerOf(answers, row.Node)
		switch {
		case row.Node == "":
			row.addStatus(unknown, "its node affinity does not name one node by "+api.TopologyKey+", so the state of the volume is unknown")
		case a == nil:
			row.addStatus(noDriver, "no driver pod runs on node "+row.Node+", so the state of the volume is unknown")
		case a.err != nil:
			row.addStatus(unknown, "the node did not answer: "+a.err.Error())
		default:
			row.fill(&pv, a)
		}
		switch phase := cmp.Or(pv.Status.Phase, corev1.VolumePending); phase {
		case corev1.VolumeBound:
		case corev1.VolumeReleased, corev1.VolumeFailed:
			row.addStatus(strings.ToLower(string(phase)), cmp.Or(pv.Status.Message, "its claim is deleted; the volume is retained, or waits for deletion"))
		default:
			row.addStatus(strings.ToLower(string(phase)), "no claim is bound to it")
		}
		if len(row.Status) == 0 {
			row.Status = []string{healthy}
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
	known := map[string]bool{}
	for _, r := range rows {
		known[r.Handle] = true
	}
	for _, a := range answers {
		for _, v := range a.page.Volumes {
			if a.err != nil || known[v.ID] || v.State != string(lvm.StateDeleting) || v.Cluster != a.page.Cluster {
				continue
			}
			wiping = append(wiping, volumeRow{Claim: v.Claim, Node: a.node, Volume: string(v.Group) + "/" + v.LV, Layout: v.Layout, Pool: v.Pool, Size: v.Size,
				Handle: v.ID, Class: v.Class, Created: v.Created, Encryption: v.Encryption, Status: []string{beingWiped}, Text: []string{"deleted; its space is free when it is wiped"}})
		}
	}
	return wiping
}

// Words for a volume's status, in addition to conditions and states.
const (
	healthy    = "ok"
	noDriver   = "no driver"
	unknown    = "unknown"
	beingWiped = "wiping"
)

// addStatus adds what is wrong, in a word and as a sentence.
func (r *volumeRow) addStatus(word, text string) {
	if !slices.Contains(r.Status, word) {
		r.Status = append(r.Status, word)
	}
	r.Text = append(r.Text, text)
}

// fill adds what the volume's node reports.
func (r *volumeRow) fill(pv *corev1.PersistentVolume, a *answer) {
	v := a.volume(r.Handle)
	if v == nil {
		r.fillAbsent(pv, a)
		return
	}
	if is, renamed := renamedOf(pv, a); renamed {
		r.addStatus(is.status, is.what)
	}
	r.Volume, r.Layout, r.Pool, r.Size, r.Used = string(v.Group)+"/"+v.LV, v.Layout, v.Pool, v.Size, v.Used
	r.FileSystem, r.LastSnapshot, r.Encryption = v.FileSystem, v.LastSnapshot, cmp.Or(r.Encryption, v.Encryption)
	r.IOLimits = v.IOLimits
	if r.Created.IsZero() {
		r.Created = v.Created
	}
	if f := r.FileSystem; f != nil && f.Error != "" {
		r.addStatus("file system unknown", f.Error)
	}
	if v.State != string(lvm.StateReady) {
		r.addStatus(v.State, "the volume has the state "+v.State)
	}
	for _, f := range a.page.Conditions {
		if f.Volume == v.ID || f.Volume == "" && f.Group == v.Group && (f.GroupUUID == "" || strings.HasPrefix(v.ID, string(f.GroupUUID)+"/")) {
			r.addStatus(f.Type, f.Text)
		}
	}
}

// fillAbsent says why the volume's node does not report it.
func (r *volumeRow) fillAbsent(pv *corev1.PersistentVolume, a *answer) {
	for _, x := range a.page.Conditions {
		if x.Volume == r.Handle {
			r.addStatus(x.Type, x.Text)
		}
	}
	why := a.incomplete()
	switch {
	case len(r.Status) > 0:
	case why != "":
		r.addStatus(unknown, "its node does not report it, and its report is incomplete: "+why)
	default:
		is := absenceOf(pv, a)
		r.addStatus(is.status, is.what)
	}
}

// fileSystemUse returns the use of a file system's space and inodes; "": unknown. Space that only root can use counts as used.
func (r *volumeRow) fileSystemUse() (space, inodes string) {
	f := r.FileSystem
	if f == nil || f.Error != "" {
		return "", ""
	}
	return percent(f.Size-f.Available, f.Size), percent(f.InodesUsed, f.Inodes)
}

// encryptionCell returns how a volume is encrypted, and the Secret with its key.
func (r *volumeRow) encryptionCell() string {
	if r.Encryption == "" || r.KeySecret == "" {
		return r.Encryption
	}
	return r.Encryption + " (" + r.KeySecret + ")"
}

// limitCells returns the limits of reads and of writes: "1000/s, 100 MiB/s"; "": none.
func (r *volumeRow) limitCells() (read, write string) {
	if r.IOLimits == nil {
		return "", ""
	}
	cell := func(iops int64, bandwidth lvm.Bytes) string {
		var words []string
		if iops > 0 {
			words = append(words, strconv.FormatInt(iops, 10)+"/s")
		}
		if bandwidth > 0 {
			words = append(words, bandwidth.String()+"/s")
		}
		return strings.Join(words, ", ")
	}
	return cell(r.IOLimits.ReadIOPS, r.IOLimits.ReadBandwidth), cell(r.IOLimits.WriteIOPS, r.IOLimits.WriteBandwidth)
}

func volumeTable(rows []volumeRow, now time.Time, wide bool) *table {
	t := &table{header: []string{"CLAIM", "POD", "NODE", "CLASS", "SIZE", "FS USED", "INODES", "THIN", "AGE", "SNAPSHOT", "STATUS"}, none: "No volumes of nodelvm."}
	if wide {
		t.header = append(t.header, "FS TYPE", "ENCRYPTION", "READ LIMIT", "WRITE LIMIT", "VOLUME", "LAYOUT", "THIN POOL", "PERSISTENTVOLUME", "HANDLE")
	}
	for _, r := range rows {
		thin := ""
		if r.Used != nil {
			thin = percent(*r.Used, r.Size)
		}
		space, inodes := r.fileSystemUse()
		row := []string{r.Claim, strings.Join(r.Pods, ","), r.Node, r.Class, r.Size.String(), space, inodes, thin, age(r.Created, now), age(r.LastSnapshot, now), strings.Join(r.Status, ",")}
		if wide {
			fsType := ""
			if r.FileSystem != nil {
				fsType = r.FileSystem.Type
			}
			read, write := r.limitCells()
			row = append(row, fsType, r.encryptionCell(), read, write, r.Volume, r.Layout, r.Pool, r.PV, r.Handle)
		}
		t.add(row...)
	}
	return t
}

// age returns the time since at as kubectl prints it, or "" if at is zero.
func age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}
