package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// returned puts on node-1 what a node that was lost brings back: the claim of pvc-old has another volume, and pvc-0 has no PersistentVolume.
func returned(f *facts) {
	page := &f.answers[0].page
	for _, name := range []string{"pvc-old", "pvc-0"} {
		page.Volumes = append(page.Volumes, report.Volume{ID: vg1 + "/" + name, Group: "vg-data", LV: name, Cluster: ours, State: string(lvm.StateReady), Size: 2 * GiB})
	}
	page.Comparison.Unreferenced = []report.Unreferenced{
		{Reason: report.ReasonAbandoned, Group: "vg-data", LV: "pvc-old", Handle: vg1 + "/pvc-old", Size: 2 * GiB},
		{Reason: report.ReasonUnreferenced, Group: "vg-data", LV: "pvc-0", Handle: vg1 + "/pvc-0", Size: 2 * GiB},
	}
}

// TestDoctorOrphansOfNow: the comparison may be an hour old, so doctor leaves out what was removed or adopted since, and what is another cluster's.
func TestDoctorOrphansOfNow(t *testing.T) {
	for name, since := range map[string]func(f *facts, page *report.Node){
		"adopted": func(f *facts, _ *report.Node) {
			for _, name := range []string{"pvc-old", "pvc-0"} {
				f.volumes = append(f.volumes, volume(name, "node-1", vg1, "shop/"+name, "2Gi"))
			}
			f.answers[0].page.Volumes[1].Claim = "shop/pvc-old"
		},
		"removed": func(_ *facts, page *report.Node) { page.Volumes = page.Volumes[:1] },
		"being wiped": func(_ *facts, page *report.Node) {
			page.Volumes[1].State, page.Volumes[2].State = "deleting", "deleting"
		},
		"another cluster": func(_ *facts, page *report.Node) { ofAnotherCluster(page) },
	} {
		f := sound()
		returned(f)
		since(f, &f.answers[0].page)
		if found := examine(f).Findings; len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
	f := sound()
	returned(f)
	kept := volume("pvc-old", "node-1", vg1, "shop/data-db-0", "2Gi")
	kept.Status.Phase = corev1.VolumeReleased
	f.volumes = append(f.volumes, kept)
	if found := examine(f).Findings; len(found) != 1 || !strings.Contains(found[0].What, "1 unreferenced, 1 abandoned, 4 GiB in total") {
		t.Errorf("with a PersistentVolume that is retained: %+v", found)
	}
}

func ofAnotherCluster(page *report.Node) {
	for i := range page.Comparison.Unreferenced {
		page.Comparison.Unreferenced[i].Reason = report.ReasonOtherCluster
	}
}

// TestDoctorWithoutComparison: a driver that has not compared its disks with the cluster knows nothing of orphans.
func TestDoctorWithoutComparison(t *testing.T) {
	f := sound()
	f.answers[0].page.Comparison.Error = "the API server does not answer"
	f.answers[1].page.Comparison = &report.Comparison{}
	d := examine(f)
	for _, want := range []string{"node-1: orphans: the driver cannot compare its disks with the cluster: the API server does not answer",
		"node-2: orphans: the driver has not compared its disks with the cluster yet; it does so within minutes of its start"} {
		if !slices.Contains(d.Unread, want) {
			t.Errorf("no %q in %q", want, d.Unread)
		}
	}
}
