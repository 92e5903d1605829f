package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
)

func TestOrphansArePrinted(t *testing.T) {
	found := []kube.Orphan{{
		Owned: lvm.Owned{Volume: lvm.Volume{ID: lvm.ID{VG: "u", LV: "pvc-1"}, Group: "vg", Size: lvm.GiB, Claim: "shop/data"}},
		Kind:  kube.OrphanAbandoned, Why: "its claim has another volume now",
	}}
	var table, rows, none bytes.Buffer
	if err := printOrphans(&table, found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"KIND", "abandoned  vg/pvc-1  1 GiB  shop/data  its claim"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	if err := printOrphansJSON(&rows, found); err != nil || !strings.Contains(rows.String(), `"size": 1073741824`) || !strings.Contains(rows.String(), `"handle": "u/pvc-1"`) {
		t.Errorf("%v: %s", err, rows.String())
	}
	if err := printOrphansJSON(&none, nil); err != nil || none.String() != "[]\n" {
		t.Errorf("nothing is printed as %q: %v", none.String(), err)
	}
}

func TestAdoptRefusesWhatItCannotMean(t *testing.T) {
	for name, c := range map[string]struct {
		o       adoptOptions
		volumes []string
	}{
		"nothing":             {adoptOptions{policy: "Retain"}, nil},
		"two":                 {adoptOptions{policy: "Retain"}, []string{"vg/a", "vg/b"}},
		"all and one":         {adoptOptions{policy: "Retain", all: true}, []string{"vg/a"}},
		"all with tags":       {adoptOptions{policy: "Retain", all: true, tag: true}, nil},
		"all for one claim":   {adoptOptions{policy: "Retain", all: true, claim: "a/b"}, nil},
		"a raw file system":   {adoptOptions{policy: "Retain", block: true, fsType: "xfs"}, []string{"vg/a"}},
		"a policy of its own": {adoptOptions{policy: "Recycle"}, []string{"vg/a"}},
	} {
		if err := c.o.check(c.volumes); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := (&adoptOptions{policy: "Delete"}).check([]string{"vg/a"}); err != nil {
		t.Error(err)
	}
	for lv, want := range map[string]string{"data": "vg-data", "Data": "adopted-", "a_b": "adopted-", "a..b": "adopted-"} {
		if got := volumeName("vg", lv); !strings.HasPrefix(got, want) || !objectName.MatchString(got) {
			t.Errorf("%s is called %s", lv, got)
		}
	}
}
