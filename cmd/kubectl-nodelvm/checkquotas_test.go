package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// manySnapshots lets a namespace have more than half of what a thin pool can provision.
func manySnapshots(f *facts) *report.Node {
	page := &f.answers[1].page
	f.contents[0].Spec.VolumeSnapshotRef.Namespace = "shop"
	for i := range 24 {
		next := page.Snapshots[0]
		next.ID = fmt.Sprintf("%s-%d", next.ID, i)
		page.Snapshots = append(page.Snapshots, next)
	}
	page.Groups[0].Pools[0].Provisioned += 25 * 4 * GiB
	return page
}

// manyClaims lets a namespace have most of a metadata area.
func manyClaims(f *facts) {
	page := &f.answers[0].page
	for i := range 150 {
		next := page.Volumes[0]
		next.ID, next.LV, next.Claim = fmt.Sprintf("%s-%d", next.ID, i), fmt.Sprintf("%s-%d", next.LV, i), fmt.Sprintf("shop/small-%d", i)
		page.Volumes = append(page.Volumes, next)
	}
	page.Groups[0].MetadataSize, page.Groups[0].MetadataFree = MiB, MiB/4
}

func quota(namespace string, names ...corev1.ResourceName) corev1.ResourceQuota {
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for _, name := range names {
		q.Spec.Hard[name] = resource.MustParse("10")
	}
	return q
}

// TestQuotas: a quota of the namespace for what it has many of ends the finding, and no other quota does.
func TestQuotas(t *testing.T) {
	members := func(f *facts) {
		for i := range manySnapshots(f).Snapshots {
			f.answers[1].page.Snapshots[i].Name = "g-0d9f6e0a7f0b4c6c9a5e1b2c3d4e5f60/1"
		}
	}
	for name, test := range map[string]struct {
		plant  func(f *facts)
		quotas []corev1.ResourceQuota
		fix    string // "": nothing is found
	}{
		"snapshots":                        {func(f *facts) { manySnapshots(f) }, nil, "--hard=count/volumesnapshots.snapshot.storage.k8s.io=NUMBER"},
		"snapshots, limited":               {func(f *facts) { manySnapshots(f) }, []corev1.ResourceQuota{quota("shop", quotaOfSnapshots)}, ""},
		"snapshots, another's quota":       {func(f *facts) { manySnapshots(f) }, []corev1.ResourceQuota{quota("bank", quotaOfSnapshots)}, "kubectl -n shop "},
		"snapshots, a quota of storage":    {func(f *facts) { manySnapshots(f) }, []corev1.ResourceQuota{quota("shop", "requests.storage", quotaOfClaims)}, "kubectl -n shop "},
		"group snapshots":                  {members, []corev1.ResourceQuota{quota("shop", quotaOfSnapshots)}, "--hard=count/volumegroupsnapshots.groupsnapshot.storage.k8s.io=NUMBER"},
		"group snapshots, limited":         {members, []corev1.ResourceQuota{quota("shop", quotaOfSnapshots, quotaOfGroupSnapshots)}, ""},
		"claims":                           {manyClaims, nil, "--hard=persistentvolumeclaims=NUMBER"},
		"claims, limited":                  {manyClaims, []corev1.ResourceQuota{quota("shop", "count/persistentvolumeclaims")}, ""},
		"claims, limited in a class":       {manyClaims, []corev1.ResourceQuota{quota("shop", "local.storageclass.storage.k8s.io/persistentvolumeclaims")}, ""},
		"claims, another driver's class":   {manyClaims, []corev1.ResourceQuota{quota("shop", "ebs.storageclass.storage.k8s.io/persistentvolumeclaims")}, "kubectl -n shop "},
		"few snapshots of a deleted claim": {func(f *facts) { f.answers[1].page.Snapshots[0].Source = "gone" }, nil, ""},
		"snapshots of deleted claims": {func(f *facts) {
			page := manySnapshots(f)
			for i := range page.Snapshots {
				page.Snapshots[i].Source = "gone"
			}
			page.Snapshots[0].Size = 100 * GiB // whose content names its namespace
		}, nil, "kubectl -n shop "},
		"quotas that cannot be read": {func(f *facts) { manySnapshots(f); f.unreadable = map[string]bool{theQuotas: true} }, nil, ""},
	} {
		f := sound()
		test.plant(f)
		f.quotas = test.quotas
		var fixes []string
		for _, x := range examine(f).Findings {
			if x.Check == "quotas" {
				fixes = append(fixes, x.Where+": "+x.Fix)
			}
		}
		if got := strings.Join(fixes, "\n"); (test.fix == "") != (got == "") || !strings.Contains(got, test.fix) || len(fixes) > 1 {
			t.Errorf("%s: %q, want %q", name, got, test.fix)
		}
	}
	f := sound() // of another pool of the group
	page := manySnapshots(f)
	page.Volumes[0].Pool = "other"
	page.Groups[0].Pools = append(page.Groups[0].Pools, report.Pool{Name: "other", Size: lvm.GiB, Zero: true, State: report.PoolWorks})
	for _, x := range examine(f).Findings {
		if x.Check == "quotas" {
			t.Errorf("of a pool that no class has: %+v", x)
		}
	}
}
