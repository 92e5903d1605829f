package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// troubled returns the sound cluster with a third node that does not answer, a degraded volume, a full pool, and orphans.
func troubled() *facts {
	f := sound()
	f.drivers = append(f.drivers, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nodelvm-node-3"}, Spec: corev1.PodSpec{NodeName: "node-3"}})
	f.answers = append(f.answers, answer{node: "node-3", err: errors.New("the driver (pod nodelvm-node-3) has not answered within 10s")},
		answer{node: "node-4", page: report.Node{Node: "node-4", Version: "v0.1.0", Cluster: ours, Time: now, Comparison: &report.Comparison{Time: now}}})
	f.volumes = append(f.volumes, volume("pvc-3", "node-3", vg1, "shop/data-db-2", "10Gi"), volume("pvc-9", "node-1", vg1, "shop/lost", "1Gi"),
		volume("pvc-8", "node-5", vg1, "shop/gone", "1Gi"))
	f.volumes[1].Status.Phase = corev1.VolumeReleased
	for _, i := range []int{1, 2} { // the node of the second one does not answer
		f.volumes[i].Spec.CSI.VolumeAttributes = map[string]string{api.AttributeEncryption: "luks2"}
		f.volumes[i].Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: "shop", Name: f.volumes[i].Spec.ClaimRef.Name + "-key"}
	}
	f.volumes[1].Annotations = map[string]string{api.AnnotationAbandonedSince: "2026-02-01T00:00:00Z"}
	f.answers[0].page.Conditions = []report.Condition{{Type: "VolumeDegraded", Group: "vg-data", Volume: vg1 + "/pvc-1", Text: "1 of its 2 legs have failed"}}
	f.answers[1].page.Groups[0].Pools[0].State = report.PoolFull
	f.answers[1].page.Conditions = []report.Condition{{Type: "ThinPoolFull", Group: "vg-data", Pool: lvm.DefaultPool, Volume: vg2 + "/pvc-2", Text: "its thin pool is full"}}
	old := f.answers[0].page.Volumes[0].Created
	f.answers[0].page.Volumes = append(f.answers[0].page.Volumes,
		report.Volume{ID: vg1 + "/pvc-5", Group: "vg-data", LV: "pvc-5", Name: "pvc-5", Claim: "shop/old", Cluster: ours, State: string(lvm.StateReady), Size: GiB, Created: old},
		report.Volume{ID: vg1 + "/pvc-4", Group: "vg-data", LV: "pvc-4", Name: "pvc-4", Claim: "shop/moved", Cluster: ours, State: string(lvm.StateReady), Size: GiB, Created: old},
		report.Volume{ID: vg1 + "/pvc-c", Group: "vg-data", LV: "pvc-c", Name: "pvc-c", Claim: "shop/making", Cluster: ours, State: string(lvm.StateReady), Size: GiB, Created: old},
		report.Volume{ID: vg1 + "/pvc-6", Group: "vg-data", LV: "pvc-6", Name: "pvc-6", Claim: "shop/theirs", Cluster: another, State: string(lvm.StateReady), Size: GiB, Created: old},
		report.Volume{ID: vg1 + "/pvc-7", Group: "vg-data", LV: "pvc-7", Name: "pvc-7", Cluster: ours, State: string(lvm.StateReady), Size: GiB, Created: now},
		report.Volume{ID: vg1 + "/pvc-a", Group: "vg-data", LV: "pvc-a", Name: "pvc-a", Cluster: ours, State: string(lvm.StateDeleting), Size: GiB, Created: old},
		report.Volume{ID: vg1 + "/pvc-d", Group: "vg-data", LV: "pvc-d", Name: "pvc-d", Claim: "shop/past", Cluster: ours, State: string(lvm.StateDeleting), Layout: "linear", Size: 3 * GiB, Created: old})
	unreferenced := func(node int, name, claim, cluster string, reason report.Reason, text string) {
		c := f.answers[node].page.Comparison
		c.Unreferenced = append(c.Unreferenced, report.Unreferenced{Reason: reason, Group: "vg-data", LV: name, Handle: vg1 + "/" + name, Name: name,
			Size: GiB, FormerClaim: claim, Cluster: cluster, Created: old, Text: text})
	}
	unreferenced(0, "pvc-4", "shop/moved", ours, report.ReasonAbandoned, "its claim now uses the volume pvc-b")
	unreferenced(0, "pvc-5", "shop/old", ours, report.ReasonUnreferenced, "no PersistentVolume refers to it")
	unreferenced(0, "pvc-6", "shop/theirs", another, report.ReasonOtherCluster, `created by the cluster "`+another+`"`)
	unreferenced(0, "pvc-7", "", ours, report.ReasonUnreferenced, "no PersistentVolume refers to it")
	sda, sdb := report.Disk{Path: "/dev/sda", Model: "DISK 9000", Serial: "S1", Slot: "Slot 07", WWN: "naa.5", Seen: now},
		report.Disk{Path: "/dev/sdb", Model: "DISK 9000", Serial: "S2", Slot: "Slot 08", Seen: now.Add(-2 * time.Hour)}
	f.answers[0].page.Groups[0].PVs = []report.PV{
		{UUID: "pv-a", Device: "/dev/sda", Extents: 100, Disk: &sda, Allocated: []report.ExtentRange{{Count: 60, LV: "pvc-1_rimage_0", Owner: "pvc-1"}, {Start: 60, Count: 20, LV: "pvc-4"}},
			Free: []report.ExtentRange{{Start: 80, Count: 20}}},
		{UUID: "pv-b", Extents: 100, Missing: true, Disk: &sdb, Free: []report.ExtentRange{{Start: 50, Count: 50}}},
	}
	f.answers[0].page.Groups[0].ExtentSize = GiB
	f.answers[1].page.Groups[0].PVs, f.answers[1].page.Groups[0].ExtentSize = []report.PV{{UUID: "pv-c", Device: "/dev/vdb", Extents: 10, Unresponsive: true}}, GiB
	f.answers[0].page.Groups[0].PVs[0].Accepted = "first-use"
	f.answers[1].page.Unaccepted = []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-x", Identity: "WWID naa.1", Reason: "it may be foreign"}}
	f.answers[1].page.LostDisks = []report.LostDisk{{PV: "pv-d", Group: "vg-old", Disk: report.Disk{Path: "/dev/nvme0n1", Model: "FAST 1T", Serial: "S9", Size: 1000 * GiB, Seen: now.Add(-50 * time.Hour)}}}
	f.answers[0].page.Volumes[0].FileSystem = &report.FileSystem{Type: "ext4", Size: 10 * GiB, Used: 9 * GiB, Available: GiB / 4, Inodes: 1000, InodesUsed: 10, InodesFree: 990}
	f.answers[1].page.Volumes[0].LastSnapshot = now.Add(-time.Hour)
	f.answers[1].page.Volumes[0].IOLimits = &report.IOLimits{ReadIOPS: 1000, ReadBandwidth: 100 << 20, WriteIOPS: 50}
	f.volumes[0].Spec.StorageClassName = "local"
	f.contents = append(f.contents, snapshot("snap-silent", "node-3", vg1), snapshot("snap-gone", "node-5", vg1), snapshot("snap-lost", "node-1", vg1))
	f.contents[2].Status.RestoreSize, f.contents[2].Status.CreationTime = int64(GiB), now.Add(-time.Hour).UnixNano()
	f.snapshots = []namespaceSnapshot{waitingSnapshot("snap-gone")}
	unreferenced(1, "pvc-a", "shop/data-db-1", ours, report.ReasonAbandoned, "its claim was released, and its PersistentVolume is retained")
	return f
}

func podsOfShop() []corev1.Pod {
	pod := func(name string, volumes ...corev1.Volume) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Volumes: volumes}}
	}
	claim := func(name string) corev1.Volume {
		return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	ended := pod("backup", claim("data-db-0"))
	ended.Status.Phase = corev1.PodSucceeded
	return []corev1.Pod{pod("db-0", claim("data-db-0")), pod("db-1", claim("data-db-1")), ended,
		pod("job", corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})}
}

// TestTables prints each table.
func TestTables(t *testing.T) {
	f := troubled()
	var reports []nodeReport
	for _, a := range f.answers {
		reports = append(reports, reportOf(a))
	}
	rows := volumeRowsOf(f.volumes, usersOf(podsOfShop()), f.answers)
	disks, snapshots := diskRows(f.answers), snapshotRowsOf(f.contents, f.snapshots, f.answers)
	left := leftRows("node-1", f.volumes, usersOf(podsOfShop()), f.contents, f.answers[:1])
	orphans := orphanRows(f.answers)
	for name, table := range map[string]*table{
		"nodes": nodeTable(reports, false), "nodes-wide": nodeTable(reports, true), "volumes": volumeTable(rows, now, false), "volumes-wide": volumeTable(rows, now, true),
		"disks": diskTable(disks, now, false), "disks-wide": diskTable(disks, now, true), "snapshots": snapshotTable(snapshots, now, false),
		"snapshots-wide": snapshotTable(snapshots, now, true),
		"drain-check":    leftTable(left, "node-1", nil), "orphans": orphanTable(orphans, now, false), "orphans-wide": orphanTable(orphans, now, true),
	} {
		golden(t, name+".txt", []byte(printed(t, table)))
	}
}

func printed(t *testing.T, table *table) string {
	t.Helper()
	for _, row := range table.rows {
		if len(row) != len(table.header) {
			t.Errorf("the row %q has %d cells for the %d columns %q", row, len(row), len(table.header), table.header)
		}
	}
	var out strings.Builder
	must(t, table.write(&out))
	return out.String()
}

// TestTable: three spaces are between columns, an empty cell is "-", and no cell is cut or leaves its line.
func TestTable(t *testing.T) {
	long := strings.Repeat("long", 100)
	tab := &table{header: []string{"NAME", "USED", "STATUS"}}
	tab.add("äöü-0", "", "ok")
	tab.add("x", percent(int64(999), 1000), "a\tb\n"+long)
	if got, want := printed(t, tab), "NAME    USED   STATUS\näöü-0   -      ok\nx       99%    a\\tb\\n"+long+"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := percent(int64(1), 0); got != "" {
		t.Errorf("a part of nothing is %q", got)
	}
}

// TestSnapshotsThatAreNotTaken: a snapshot that its node cannot take has a row with the reason, for those who may read all namespaces too.
func TestSnapshotsThatAreNotTaken(t *testing.T) {
	failed, other := snapshot("snap-2", "node-2", vg2), snapshot("snap-3", "", vg2)
	failed.Status.SnapshotHandle, other.Status.SnapshotHandle = "", ""
	s := waitingSnapshot("snap-2")
	s.Status.Error = &struct {
		Message string `json:"message"`
	}{"only thin volumes have snapshots"}
	rows := snapshotRowsOf([]content{failed, other}, []namespaceSnapshot{s}, nil)
	want := []snapshotRow{{Snapshot: "shop/snap-2", Claim: "shop/data-db-1", Node: "node-2", Status: "error", Text: "only thin volumes have snapshots"},
		{Snapshot: "shop/snap-3", Status: "not ready", Text: "the snapshot is not taken yet"}}
	if !slices.Equal(rows, want) {
		t.Errorf("got  %+v\nwant %+v", rows, want)
	}
}

// TestLostGroup: a group whose disk died keeps its row, and its volumes say so, whether the disk returns errors or is gone. A new group
// of that name is not taken for it.
func TestLostGroup(t *testing.T) {
	f := sound()
	page := &f.answers[0].page
	loseGroup(page)
	again := f.answers[1].page.Groups[0]
	again.UUID = "NEWNEW-0000-0000-0000-0000-0000-000009"
	for _, unread := range [][]string{nil, {"/dev/sdb could not be read: input/output error"}} {
		page.Unread, page.Groups = unread, nil
		r := reportOf(f.answers[0])
		rows := nodeRows(t, r)
		if len(unread) > 0 && !strings.HasSuffix(rows[0], "cannot read a disk: "+unread[0]) {
			t.Errorf("of the disk that cannot be read, rows %q", rows)
		}
		if rows = rows[len(unread):]; len(rows) != 1 || !strings.Contains(rows[0], "vg-data") || !strings.HasSuffix(rows[0], "PhysicalVolumeMissing,VolumeDataMissing,lost") {
			t.Errorf("unreadable %v: rows %q", unread, rows)
		}
		if v := volumeRowsOf(f.volumes, nil, f.answers)[0]; strings.Join(v.Status, ",") != "VolumeDataMissing" {
			t.Errorf("unreadable %v: the volume is %+v", unread, v)
		}
		page.Groups = []report.Group{again}
		if rows := nodeRows(t, reportOf(f.answers[0]))[len(unread):]; len(rows) != 2 || !strings.HasSuffix(rows[0], " ok") || !strings.HasSuffix(rows[1], "lost") {
			t.Errorf("with a new group of that name, rows %q", rows)
		}
	}
}

// TestNodeWithoutKnownGroup: what the driver has not read, or ignores, may have a group. The lists do not call it lost, and the node not empty.
func TestNodeWithoutKnownGroup(t *testing.T) {
	ignored := []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-a", Reason: "the node's record has it on another device"}}
	for name, test := range map[string]struct {
		plant func(page *report.Node)
		node  string // each row's end
		disks string
	}{
		"nothing is known":  {func(*report.Node) {}, "no volume group", ""},
		"a disk is unread":  {func(page *report.Node) { page.Unread = []string{"/dev/sdb: error"} }, "cannot read a disk: /dev/sdb: error", "cannot read a disk: /dev/sdb: error"},
		"a disk is ignored": {func(page *report.Node) { page.Unaccepted = ignored }, "no volume group; not accepted: /dev/sdx", "not accepted"},
		"a group is not made": {func(page *report.Node) {
			page.Conditions = []report.Condition{{Type: "VolumeGroupSetupFailed", Group: "vg-new"}}
		}, "VolumeGroupSetupFailed", ""},
		"a disk is lost": {func(page *report.Node) { loseDisk(page) }, "lost", "lost"},
		"lost, or unread": {func(page *report.Node) {
			loseDisk(page)
			page.Unread = []string{"/dev/sdb: error"}
		}, "cannot read a disk: /dev/sdb: error|unknown", "cannot read a disk: /dev/sdb: error|not found, and not all disks can be read"},
		"lost, or ignored": {func(page *report.Node) {
			loseDisk(page)
			page.Unaccepted = ignored
		}, "not accepted", "not accepted"},
	} {
		f := sound()
		page := &f.answers[0].page
		page.Groups, page.Volumes = nil, nil
		test.plant(page)
		endWith := func(want string, got []string) {
			t.Helper()
			if ends := strings.FieldsFunc(want, func(r rune) bool { return r == '|' }); !slices.EqualFunc(got, ends, strings.HasSuffix) {
				t.Errorf("%s: rows %q, want them to end with %q", name, got, ends)
			}
		}
		endWith(test.node, nodeRows(t, reportOf(f.answers[0])))
		endWith(test.disks, tableRows(t, diskTable(diskRows(f.answers[:1]), now, false)))
	}
}

// TestVolumeOnIgnoredDisk: the disk of a node's group is there, and the driver ignores it. No volume of the group is lost.
func TestVolumeOnIgnoredDisk(t *testing.T) {
	for recorded, want := range map[bool]string{true: unknown, false: statusLost} {
		f := sound()
		page := &f.answers[0].page
		page.Groups, page.Volumes = nil, nil
		page.Unaccepted = []lvm.UnacceptedPV{{Device: "/dev/sdx", PV: "pv-a", Reason: "it is on another device", Recorded: recorded}}
		if v := volumeRowsOf(f.volumes, nil, f.answers)[0]; !slices.Equal(v.Status, []string{want}) {
			t.Errorf("recorded %v: the volume is %+v", recorded, v)
		}
		lost := slices.ContainsFunc(examine(f).Findings, func(x finding) bool { return x.Check == "lost volumes" })
		if incomplete := incompleteOf(f.answers[:1]); (incomplete != nil) != recorded || lost == recorded {
			t.Errorf("recorded %v: incomplete %v, lost %v", recorded, incomplete, lost)
		}
	}
}

// loseDisk is a group without volumes that was on the node.
func loseDisk(page *report.Node) {
	page.LostDisks = []report.LostDisk{{PV: "pv-a", Group: "vg-data", GroupUUID: vg1, Disk: report.Disk{Path: "/dev/sdb", Seen: now}}}
}

// nodeRows returns the rows of one node's table, without its header.
func nodeRows(t *testing.T, r nodeReport) (rows []string) {
	t.Helper()
	return tableRows(t, nodeTable([]nodeReport{r}, false))
}

func tableRows(t *testing.T, from *table) (rows []string) {
	t.Helper()
	if len(from.rows) == 0 {
		return nil
	}
	for line := range strings.Lines(printed(t, from)) {
		rows = append(rows, strings.TrimSpace(line))
	}
	return rows[1:]
}

// TestOrphansOfIncompleteComparison: a driver that may not know all orphans on its node has a row that says why.
func TestOrphansOfIncompleteComparison(t *testing.T) {
	for name, test := range map[string]struct {
		comparison *report.Comparison
		says       string
	}{
		"no API server":    {nil, "does not compare its disks"},
		"none yet":         {&report.Comparison{}, "has not compared its disks with the cluster yet"},
		"failed":           {&report.Comparison{Time: now, Error: "forbidden"}, "cannot compare its disks with the cluster: forbidden"},
		"an old one":       {&report.Comparison{Time: now.Add(-3 * time.Hour)}, "last compared its disks with the cluster at 2026-03-01T09:00:00Z"},
		"a current answer": {&report.Comparison{Time: now.Add(-time.Hour)}, ""},
	} {
		f := sound()
		f.answers[1].page.Comparison = test.comparison
		rows := orphanRows(f.answers)
		if test.says == "" && len(rows) == 0 {
			continue
		}
		if len(rows) != 1 || rows[0].Node != "node-2" || rows[0].Reason != reasonUnknown || !strings.Contains(rows[0].Text, test.says) {
			t.Errorf("%s: %+v", name, rows)
		}
	}
}

func TestDrainCheck(t *testing.T) {
	f := sound()
	users := usersOf(append(podsOfShop(), podsOfShop()[3]))
	if rows := leftRows("node-3", f.volumes, users, f.contents, []answer{{node: "node-3", err: errors.New("none")}}); len(rows) != 0 {
		t.Errorf("on a node without data: %+v", rows)
	}
	rows := leftRows("node-2", f.volumes, users, f.contents, f.answers[1:])
	if len(rows) != 2 || rows[0].Kind != "claim" || rows[0].Name != "shop/data-db-1" || rows[0].Pods[0] != "db-1" || rows[0].Volume != "vg-data/pvc-2" ||
		rows[1].Kind != "snapshot" || rows[1].Name != "shop/snap-1" || rows[1].Volume != "vg-data/snap-1" {
		t.Errorf("on node-2: %+v", rows)
	}
	silence(f)
	rows = leftRows("node-2", f.volumes, users, f.contents, f.answers[1:])
	if len(rows) != 2 || rows[0].Volume != vg2+"/pvc-2" || rows[1].Volume != vg2+"/snap-1" {
		t.Errorf("on node-2 when it is silent: %+v", rows)
	}
	f.volumes = append(f.volumes, volume("pvc-e", "node-3", vg1, "shop/job-scratch", "1Gi"))
	rows = leftRows("node-3", f.volumes, users, nil, []answer{{err: errors.New("none")}})
	if len(rows) != 1 || !strings.Contains(rows[0].Note, "deleted with its pod") {
		t.Errorf("an ephemeral volume: %+v", rows)
	}
}

// TestDrainCheckOfMoves: the copies of volumes that move are no orphans.
func TestDrainCheckOfMoves(t *testing.T) {
	f := sound()
	f.answers[0].page.Volumes = []report.Volume{{ID: "a", Name: "a", State: string(lvm.StateMoved)}, {ID: "b", Name: "b", State: string(lvm.StateReceiving)}, {ID: "c", Name: "c", State: string(lvm.StateReceived)}}
	var kinds []string
	for _, row := range leftRows("node-1", nil, nil, nil, f.answers[:1]) {
		kinds = append(kinds, row.Kind+" "+row.Name)
	}
	if !slices.Equal(kinds, []string{"copy b", "copy c", "former copy a"}) {
		t.Errorf("%q", kinds)
	}
}

// TestDrainCheckOfUnboundVolumes: a volume that is not bound is listed as a volume: the claim that it names may not exist, or may be another.
func TestDrainCheckOfUnboundVolumes(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumePhase]string{corev1.VolumeFailed: "Failed", corev1.VolumeReleased: "Released",
		corev1.VolumeAvailable: "Available", corev1.VolumePending: "Pending", "": "Pending"} {
		f := sound()
		f.volumes[0].Status.Phase = phase
		rows := leftRows("node-1", f.volumes, usersOf(podsOfShop()), nil, f.answers[:1])
		if len(rows) != 1 || rows[0].Kind != "volume" || rows[0].Name != "pvc-1" || len(rows[0].Pods) > 0 || rows[0].Note != "not bound to a claim ("+want+")" {
			t.Errorf("%q: %+v", phase, rows)
		}
		if row := volumeRowsOf(f.volumes, usersOf(podsOfShop()), f.answers)[0]; row.Status[0] != strings.ToLower(want) || len(row.Pods) > 0 {
			t.Errorf("%q: %+v", phase, row)
		}
	}
}

// TestDrainCheckOfSeveralTerms: a volume whose affinity names several nodes stays on the node that has it on its disks, and is no orphan.
func TestDrainCheckOfSeveralTerms(t *testing.T) {
	f := sound()
	terms := &f.volumes[0].Spec.NodeAffinity.Required.NodeSelectorTerms
	*terms = append(*terms, f.volumes[1].Spec.NodeAffinity.Required.NodeSelectorTerms...)
	rows := leftRows("node-1", f.volumes, nil, nil, f.answers[:1])
	if len(rows) != 1 || rows[0].Kind != "claim" || rows[0].Name != "shop/data-db-0" || rows[0].Volume != "vg-data/pvc-1" {
		t.Errorf("on node-1: %+v", rows)
	}
	if rows := leftRows("node-2", f.volumes, nil, nil, f.answers[1:]); len(rows) != 2 || rows[0].Name != "shop/data-db-1" || rows[1].Kind != "orphan" {
		t.Errorf("on node-2: %+v", rows)
	}
	if row := volumeRowsOf(f.volumes, nil, f.answers)[0]; row.Node != "" || row.Status[0] != unknown {
		t.Errorf("row %+v", row)
	}
}

func TestEmptyTables(t *testing.T) {
	for want, table := range map[string]*table{"No orphans: each ": orphanTable(nil, now, true), "No volumes of nodelvm.\n": volumeTable(nil, now, false),
		"No data of nodelvm stays on n.\n": leftTable(nil, "n", nil), "The API server has no volume of nodelvm on n; the node did not report ": leftTable(nil, "n", errNoDriverThere)} {
		if got := printed(t, table); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// TestOrphansOfOneNamespace: rows that say that a node may have more stay.
func TestOrphansOfOneNamespace(t *testing.T) {
	row := func(reason report.Reason, claim string) orphanRow {
		return orphanRow{Unreferenced: report.Unreferenced{Reason: reason, FormerClaim: claim}}
	}
	rows := []orphanRow{row(report.ReasonAbandoned, "shop/a"), row(report.ReasonAbandoned, "shopping/a"), row(report.ReasonUnreferenced, ""), row(reasonUnknown, "")}
	if got := ofNamespace(slices.Clone(rows), "shop"); len(got) != 2 || got[0] != rows[0] || got[1] != rows[3] {
		t.Errorf("%+v", got)
	}
	if got := ofNamespace(slices.Clone(rows), ""); len(got) != len(rows) {
		t.Errorf("of all namespaces: %+v", got)
	}
}

// TestUnknownFileSystem: a volume whose file system does not answer does not have the status ok.
func TestUnknownFileSystem(t *testing.T) {
	f := sound()
	f.answers[0].page.Volumes[0].FileSystem = &report.FileSystem{Error: "the file system has not answered"}
	if rows := volumeRowsOf(f.volumes, nil, f.answers); rows[0].Status[0] != "file system unknown" {
		t.Errorf("%v", rows[0].Status)
	}
}

// TestFormats: JSON and YAML output hold the same data, and parse to the rows that were printed.
func TestFormats(t *testing.T) {
	rows := volumeRowsOf(sound().volumes, nil, sound().answers)
	for _, format := range []string{"json", "yaml"} {
		var out bytes.Buffer
		s := settings{format: format}
		must(t, s.print(&out, rows, nil))
		var back []volumeRow
		if err := yaml.UnmarshalStrict(out.Bytes(), &back); err != nil || len(back) != 2 || back[1].Used == nil || *back[1].Used != GiB || back[0].Status[0] != "ok" {
			t.Errorf("%s: %v\n%s", format, err, &out)
		}
		if format == "json" && !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %s", &out)
		}
	}
	if rows[0].Used != nil || *ptr.To(rows[0].Size) != 10*GiB {
		t.Errorf("row %+v", rows[0])
	}
}

// TestNames: -o name prints the object of each row once, as kubectl names it.
func TestNames(t *testing.T) {
	var out bytes.Buffer
	s := settings{format: "name"}
	rows := append(volumeRowsOf(sound().volumes, nil, sound().answers), volumeRow{Status: []string{beingWiped}})
	err := errors.Join(printRows(&s, &out, []nodeReport{{Node: "node-1"}, {Node: "node-1"}}, nil), printRows(&s, &out, rows, nil),
		printRows(&s, &out, []snapshotRow{{Snapshot: "shop/snap-1"}, {Snapshot: "test/snap-1"}, {Handle: "orphan"}}, nil))
	if want := "node/node-1\npersistentvolume/pvc-1\npersistentvolume/pvc-2\nvolumesnapshot.snapshot.storage.k8s.io/snap-1\nvolumesnapshot.snapshot.storage.k8s.io/snap-1\n"; err != nil || out.String() != want {
		t.Errorf("%v, %q, want %q", err, &out, want)
	}
}

// TestUnknownSizes: a group without a metadata area, and a pool without extents, have no percentage.
func TestUnknownSizes(t *testing.T) {
	group := groupReport{Group: report.Group{Name: "vg-data", Pools: []report.Pool{{Name: "pool"}}}}
	row := nodeTable([]nodeReport{{Node: "node-1", Groups: []groupReport{group}}}, true).rows[0]
	if pools, metadata := row[13], row[14]; pools != "pool" || metadata != "-" {
		t.Errorf("the table says %q and %q", pools, metadata)
	}
}

func TestFlags(t *testing.T) {
	for args, says := range map[string]string{
		"nodes -o table":                   `--output is "table"; give one of json, yaml, wide, name`,
		"disks -o name":                    "disks lists no objects of the API: --output name is for nodes, volumes, snapshots, moves",
		"nodes --as-user-extra scopes":     "give KEY=VALUE",
		"nodes extra":                      "extra",
		"drain-check":                      "accepts 1 arg",
		"nodes --kubeconfig /no/such/file": "/no/such/file",
		"volumes --no-such-flag":           "no-such-flag",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want it to say %q", args, err, says)
		}
	}
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs([]string{"__complete", "nodes", "-o", ""})
	if err := root.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "json\nyaml\nwide\nname\n") {
		t.Errorf("completion: %v, %q", err, &out)
	}
}

// TestConnectionFlags: the plugin has all of kubectl's flags for the API server and its user, and uses them.
func TestConnectionFlags(t *testing.T) {
	c, root := newCommand()
	for _, name := range strings.Fields("as as-group as-uid as-user-extra certificate-authority client-certificate client-key cluster context disable-compression " +
		"insecure-skip-tls-verify kubeconfig namespace password request-timeout server tls-server-name token user username") {
		if root.PersistentFlags().Lookup(name) == nil {
			t.Errorf("there is no flag --%s", name)
		}
	}
	must(t, root.ParseFlags(strings.Fields("-s https://api:1 --as me --as-user-extra scopes=a --as-user-extra scopes=b --request-timeout 3s -n shop")))
	config, err := c.config.ClientConfig()
	if err != nil || config.Host != "https://api:1" || config.Impersonate.UserName != "me" || !slices.Equal(config.Impersonate.Extra["scopes"], []string{"a", "b"}) || config.Timeout != 3*time.Second {
		t.Errorf("%v, %+v", err, config)
	}
}

// TestMemberOfAGroupIsNoOrphan: a snapshot of a group snapshot may have no object but the group's, which the plugin does not read: what the driver says
// counts.
func TestMemberOfAGroupIsNoOrphan(t *testing.T) {
	member := report.Snapshot{ID: vg2 + "/s-1", Group: "vg-data", LV: "s-1", Name: lvm.MemberName(lvm.GroupSnapshotName("groupsnapshot-uid"), 0), State: string(lvm.StateReady)}
	for name, test := range map[string]struct {
		found          []report.Unreferenced
		status, inList string
	}{
		"with its group":    {nil, healthy, "snapshot"},
		"without its group": {[]report.Unreferenced{{Handle: member.ID}}, "orphaned", "orphan"},
	} {
		a := []answer{{node: "node-2", page: report.Node{Comparison: &report.Comparison{Unreferenced: test.found}}}}
		a[0].page.Snapshots = []report.Snapshot{member}
		if rows := snapshotRowsOf(nil, nil, a); len(rows) != 1 || rows[0].Status != test.status {
			t.Errorf("%s: snapshots %+v", name, rows)
		}
		if rows := leftRows("node-2", nil, nil, nil, a); len(rows) != 1 || rows[0].Kind != test.inList {
			t.Errorf("%s: drain-check %+v", name, rows)
		}
	}
}

// must ends the test at once if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
