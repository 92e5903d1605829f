package lvm_test

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

func TestNearestParameter(t *testing.T) {
	for unknown, want := range map[string]string{
		"volumegroup": "volumeGroup", "volume-group": "volumeGroup", "volumeGruop": "volumeGroup", "layuot": "layout",
		"Layout": "layout", "stripe": "stripes", "stripsize": "stripeSize", "fsType": api.ParameterFSType, "fstype": api.ParameterFSType,
		"thinpool": "thinPool", "vgName": "", "encrytpion": "encryption", "wip": "wipe", "volumeGroups": "volumeGroup", "x": "",
		"mkfsOption": "mkfsOptions", "encrypt": "encryption", "replicas": "", "": "", strings.Repeat("x", 1<<16): "",
	} {
		if got := lvm.NearestParameter(unknown); got != want {
			t.Errorf("%.20q resembles %q; want %q", unknown, got, want)
		}
	}
}

func TestUnknownParameter(t *testing.T) {
	known := map[string]string{api.ParameterFSType: "xfs"}
	for _, name := range lvm.ParameterNames() {
		known[name] = "x"
	}
	if got := lvm.UnknownParameter(known); got != "" {
		t.Errorf("%q is unknown", got)
	}
	known["zzz"], known["volumegroup"] = "1", "2"
	if got := lvm.UnknownParameter(known); got != "volumegroup" {
		t.Errorf("the first unknown one is %q", got)
	}
}
