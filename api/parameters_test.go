package api

import (
	"strings"
	"testing"
)

func TestNearestParameter(t *testing.T) {
	for unknown, want := range map[string]string{
		"volumegroup": ParameterVolumeGroup, "volume-group": ParameterVolumeGroup, "volumeGruop": ParameterVolumeGroup, "layuot": ParameterLayout,
		"Layout": ParameterLayout, "stripe": ParameterStripes, "stripsize": ParameterStripeSize, "fsType": ParameterFSType, "fstype": ParameterFSType,
		"thinpool": ParameterThinPool, "vgName": "", "encrytpion": ParameterEncryption, "wip": ParameterWipe, "volumeGroups": ParameterVolumeGroup, "x": "",
		"mkfsOption": ParameterMkfsOptions, "encrypt": ParameterEncryption, "replicas": "", "": "", strings.Repeat("x", 1<<16): "",
	} {
		if got := NearestParameter(unknown); got != want {
			t.Errorf("%.20q resembles %q; want %q", unknown, got, want)
		}
	}
}

func TestUnknownParameter(t *testing.T) {
	known := map[string]string{ParameterFSType: "xfs"}
	for _, name := range Parameters {
		known[name] = "x"
	}
	if got := UnknownParameter(known); got != "" {
		t.Errorf("%q is unknown", got)
	}
	known["zzz"], known["volumegroup"] = "1", "2"
	if got := UnknownParameter(known); got != "volumegroup" {
		t.Errorf("the first unknown one is %q", got)
	}
}
