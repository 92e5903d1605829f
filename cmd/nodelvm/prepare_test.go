package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
)

func declaredIn(t *testing.T, text string) ([]lvm.Declaration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "groups.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return readDeclarations(path)
}

// TestDeclarations: each field arrives, from YAML and from JSON, and a typo is an error.
func TestDeclarations(t *testing.T) {
	got, err := declaredIn(t, `
volumeGroups:
  - name: vg-data
    tags: [fast, nvme]
    maxDevices: 4
    devices:
      - {paths: ["/dev/disk/by-id/nvme-*"], minSize: 100Gi, maxSize: 8T, rotational: false, model: "FAST*"}
    thinPool: {size: 1Ti, autoextendThreshold: 70, metadataAutoextendThreshold: 50}
`)
	must(t, err)
	want := []lvm.Declaration{{
		Name: "vg-data", Tags: []string{"fast", "nvme"}, MaxDevices: 4,
		Devices: []lvm.Selector{{Paths: []string{"/dev/disk/by-id/nvme-*"}, MinSize: 100 * lvm.GiB, MaxSize: 8e12, Rotational: new(bool), Model: "FAST*"}},
		Pool:    lvm.PoolPolicy{Name: lvm.DefaultPool, Size: lvm.TiB, AutoextendThreshold: 70, MetadataAutoextendThreshold: 50},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got, err = declaredIn(t, `{"volumeGroups": [{"name": "vg", "devices": [{"minSize": 1073741824}]}]}`)
	if err != nil || len(got) != 1 || got[0].Devices[0].MinSize != lvm.GiB || got[0].Pool != (lvm.PoolPolicy{}) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, words := range map[string]string{
		`volumeGroups: [{name: vg, device: []}]`:                 "device",
		`volumeGroups: [{name: vg, devices: [{minSize: much}]}]`: "quantities",
		`groups: []`: "groups",
		"volumeGroups: [{name: vg, devices: [{minSize: 1Gi, paths: }]}]":       "paths has no value",
		"volumeGroups: [{name: vg, devices: [{minSize: 1Gi, rotational: }]}]":  "rotational has no value",
		"volumeGroups: [{name: vg, maxDevices: , devices: [{minSize: 1Gi}]}]":  "maxDevices has no value",
		"volumeGroups: [{name: vg, devices: [{paths: [/dev/sdb, ]}, null]}]":   "an item of a list has no value",
		`volumeGroups: [{name: vg, maxDevices: 0, devices: [{minSize: 1Gi}]}]`: "maxDevices is 0",
		`volumeGroups: [{name: vg, devices: [{rotational: "sometimes"}]}]`:     "rotational",
	} {
		if _, err := declaredIn(t, text); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := readDeclarations("/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("no file: %v", err)
	}
}

// TestPrepareBestEffort: the driver starts even if it cannot read the file, and reports the error.
func TestPrepareBestEffort(t *testing.T) {
	for _, best := range []bool{true, false} {
		cmd := prepareCommand()
		var words strings.Builder
		cmd.SetErr(&words)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		args := []string{"--volume-groups-file", "/nowhere"}
		if best {
			args = append(args, "--best-effort")
		}
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if (err == nil) != best || best && !strings.Contains(words.String(), "/nowhere") {
			t.Errorf("best effort %v: %v, %q", best, err, words.String())
		}
	}
}
