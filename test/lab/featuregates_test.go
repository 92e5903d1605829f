package lab

import (
	"slices"
	"testing"
)

func TestFeatureGates(t *testing.T) {
	for text, want := range map[string]struct {
		flags []string
		yaml  string
	}{
		"":                       {nil, "{}"},
		"CSIVolumeHealth=true":   {[]string{"--feature-gates=CSIVolumeHealth=true"}, "{CSIVolumeHealth: true}"},
		"SELinux=false,AB2=true": {[]string{"--feature-gates=AB2=true,SELinux=false"}, "{AB2: true, SELinux: false}"},
	} {
		gates, err := parseFeatureGates(text)
		must(t, err)
		if flags := gates.flags(); !slices.Equal(flags, want.flags) || gates.yaml() != want.yaml {
			t.Errorf("%q: %q and %s, want %q and %s", text, flags, gates.yaml(), want.flags, want.yaml)
		}
	}
	for _, bad := range []string{"CSIVolumeHealth", "CSIVolumeHealth=yes", "A=true,", "A=true}\nx: {B=true", " A=true"} {
		if _, err := parseFeatureGates(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
