// Package alerts holds no code: its tests run the chart's alerts as Prometheus does, with its own code. It is a module of its
// own, so that Prometheus' dependencies stay away from the others.
package alerts

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
)

const (
	rulesFile = "../chart/nodelvm/files/alerts.yaml"
	docsDir   = "../../docs"
)

// healthy is a node where all is well, a value a minute for six hours; no alert may fire on it.
const healthy = `
nodelvm_volume_group_free_bytes{node="n",vg="vg",vg_uuid="u"} 50x360
nodelvm_volume_group_size_bytes{node="n",vg="vg",vg_uuid="u"} 100x360
nodelvm_volume_group_volumes{node="n",vg="vg",vg_uuid="u"} 3x360
nodelvm_volume_group_free_bytes{node="n",vg="system",vg_uuid="s"} 0x360
nodelvm_volume_group_size_bytes{node="n",vg="system",vg_uuid="s"} 100x360
nodelvm_volume_group_volumes{node="n",vg="system",vg_uuid="s"} 0x360
nodelvm_volume_group_blocked_seconds{node="n",vg="vg",vg_uuid="u"} 0x360
nodelvm_volume_condition{node="n",condition="VolumeRebuilding",vg="vg",lv="pvc-1",claim="shop/data"} 1x360
nodelvm_volume_group_wipe_backlog_bytes{node="m",vg="vg",vg_uuid="m",claim_namespace="shop"} 20-0.05x360
nodelvm_volume_group_size_bytes{node="m",vg="vg",vg_uuid="m"} 100x360
nodelvm_thin_pool_used_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="growing"} 30+0.02x360
nodelvm_thin_pool_size_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="growing"} 50x360
nodelvm_thin_pool_used_bytes{node="n",vg="system",vg_uuid="s",thin_pool="steady"} 90x360
nodelvm_thin_pool_size_bytes{node="n",vg="system",vg_uuid="s",thin_pool="steady"} 100x360
nodelvm_volume_filesystem_available_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 50x300 1x10 50x50
nodelvm_volume_filesystem_size_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x360
nodelvm_volume_filesystem_inodes_used{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 50x360
nodelvm_volume_filesystem_inodes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x360
up{namespace="nodelvm-system",pod="old",container="nodelvm-controller",endpoint="http"} 1x100
up{namespace="nodelvm-system",pod="new",container="nodelvm-controller",endpoint="http"} _x100 1x260
nodelvm_volume_group_wipe_backlog_bytes{node="n"} 0x300 9000+0x5 8000-100x50
nodelvm_volume_group_wipe_backlog_bytes{node="large"} 900000-100x360
nodelvm_metadata_verified{node="n"} 1x360
nodelvm_orphaned_volumes{node="n",reason="unreferenced"} 0x360
nodelvm_orphaned_volumes{node="n",reason="abandoned"} 1x360
nodelvm_lvm_command_duration_seconds_count{node="n",command="lvcreate",exit_code="0"} 0+10x360
nodelvm_lvm_command_duration_seconds_count{node="n",command="lvcreate",exit_code="5"} 0x100 1x260
csi_plugin_operations_seconds_count{node="n",driver_name="nodelvm.io",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="ResourceExhausted"} 0+10x360
csi_plugin_operations_seconds_count{node="n",driver_name="other.io",method_name="/csi.v1.Controller/CreateVolume",grpc_status_code="Internal"} 0+10x360
up{node="n",container="nodelvm",endpoint="http"} 1x360
up{node="n",container="other",endpoint="http"} 0x360
up{namespace="other",pod="o",container="controller",endpoint="http"} 0x360
`

// sick is, for each alert, series on which it must fire, and what its description must then say.
var sick = map[string]struct{ series, says string }{
	"NodelvmVolumeDataMissing":          {onVolume("VolumeDataMissing"), "data of claim shop/data (vg/pvc-1 on n)"},
	"NodelvmVolumeOnRemovedDisk":        {onVolume("VolumeOnRemovedDisk"), "claim shop/data (vg/pvc-1 on n)"},
	"NodelvmPhysicalVolumeMissing":      {onGroup("PhysicalVolumeMissing"), "volume group vg on n"},
	"NodelvmVolumeDegraded":             {onVolume("VolumeDegraded"), "vg/pvc-1 on n"},
	"NodelvmFileSystemReadOnly":         {onVolume("FileSystemReadOnly"), "claim shop/data"},
	"NodelvmEncryptionHeaderDamaged":    {onVolume("EncryptionHeaderDamaged"), "claim shop/data"},
	"NodelvmSignatureFound":             {onVolume("SignatureFound"), "raw block volume of claim shop/data (vg/pvc-1 on n)"},
	"NodelvmIOLimitsNotSet":             {onVolume("IOLimitsNotSet"), "claim shop/data (vg/pvc-1 on n)"},
	"NodelvmVolumeSuspended":            {onVolume("VolumeSuspended"), "claim shop/data"},
	"NodelvmDiskUnresponsive":           {`nodelvm_volume_group_blocked_seconds{node="n",vg="vg",vg_uuid="u"} 0+60x360`, "volume group vg on n"},
	"NodelvmVolumeGroupUnusable":        {onGroup("VolumeGroupUnusable"), "Volume group vg on n"},
	"NodelvmVolumeGroupMixedBlockSizes": {onGroup("VolumeGroupMixedBlockSizes"), "volume group vg on n"},
	"NodelvmVolumeGroupSetupFailed":     {onGroup("VolumeGroupSetupFailed"), "volume group vg"},
	"NodelvmPhysicalVolumeNotAccepted":  {`nodelvm_volume_condition{node="n",condition="PhysicalVolumeNotAccepted",vg=""} 1x360`, "A device of n has an LVM physical volume"},
	"NodelvmVolumeGroupNearlyFull": {`nodelvm_volume_group_free_bytes{node="n",vg="vg",vg_uuid="u"} 5x360` + "\n" + `nodelvm_volume_group_size_bytes{node="n",vg="vg",vg_uuid="u"} 100x360` + "\n" +
		`nodelvm_volume_group_volumes{node="n",vg="vg",vg_uuid="u"} 1x360`, "has 5% of its space free"},
	"NodelvmThinPoolNearlyFull":          {onGroup("ThinPoolNearlyFull"), "volume group vg on n"},
	"NodelvmThinPoolFull":                {onVolume("ThinPoolFull"), "claim shop/data"},
	"NodelvmThinPoolTransactionMismatch": {onGroup("ThinPoolTransactionMismatch"), "volume group vg on n"},
	"NodelvmThinPoolFailed":              {onVolume("ThinPoolFailed"), "claim shop/data"},
	"NodelvmOrphanedVolumes":             {`nodelvm_orphaned_volumes{node="n",reason="unreferenced"} 2x360`, "2 volumes or snapshots of this cluster on n"},
	"NodelvmLVMCommandErrors":            {`nodelvm_lvm_command_duration_seconds_count{node="n",command="lvcreate",exit_code="5"} 0+1x360`, "lvcreate failed 15 times"},
	"NodelvmCSIOperationErrors":          {`csi_plugin_operations_seconds_count{node="n",driver_name="nodelvm.io",method_name="/csi.v1.Node/NodeStageVolume",grpc_status_code="Internal"} 0+1x360`, "NodeStageVolume failed 15 times"},
	"NodelvmFileSystemNearlyFull":        {fileSystem("available", 8, "size", 100), "claim shop/data (vg/pvc-1 on n) has 8% of its space available"},
	"NodelvmFileSystemFull":              {fileSystem("available", 1, "size", 100), "has 1% of its space available"},
	"NodelvmFileSystemInodesNearlyUsed":  {strings.NewReplacer("_inodes_bytes", "_inodes", "_inodes_used_bytes", "_inodes_used").Replace(fileSystem("inodes_used", 95, "inodes", 100)), "uses 95% of its inodes"},
	"NodelvmVolumeGroupFillsUp": {`nodelvm_volume_group_free_bytes{node="n",vg="vg",vg_uuid="u"} 40000-10x360` + "\n" + `nodelvm_volume_group_size_bytes{node="n",vg="vg",vg_uuid="u"} 100000x360` + "\n" +
		`nodelvm_volume_group_volumes{node="n",vg="vg",vg_uuid="u"} 1x360`, "volume group vg on n will have no free space"},
	"NodelvmThinPoolFillsUp": {`nodelvm_thin_pool_used_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 60+0.05x360` + "\n" + `nodelvm_thin_pool_size_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 100x360` + "\n" +
		`nodelvm_volume_group_free_bytes{node="n",vg="vg",vg_uuid="u"} 10x360`, "thin pool vg/p on n"},
	"NodelvmWipeBacklogLarge": {`nodelvm_volume_group_wipe_backlog_bytes{node="n",vg="vg",vg_uuid="u",claim_namespace="a"} 20x360` + "\n" +
		`nodelvm_volume_group_wipe_backlog_bytes{node="n",vg="vg",vg_uuid="u",claim_namespace="b"} 20x360` + "\n" + `nodelvm_volume_group_size_bytes{node="n",vg="vg",vg_uuid="u"} 100x360`, "hold 40% of volume group vg on n"},
	"NodelvmControllerDown": {`up{namespace="nodelvm-system",pod="j",container="nodelvm-controller",endpoint="http"} 1x300`, "nodelvm-controller in namespace nodelvm-system"},
	"NodelvmWipeStalled":    {`nodelvm_volume_group_wipe_backlog_bytes{node="n"} 1048576x360`, "backlog on n is 1MiB"},

	"NodelvmMetadataDiffers": {`nodelvm_metadata_verified{node="n"} 0x360`, "What the driver on n reads"},
	"NodelvmDriverDown":      {`up{node="n",container="nodelvm",endpoint="http"} 0x360`, "driver on n"},
}

// fileSystem is two series of one file system.
func fileSystem(name string, value int, whole string, of int) string {
	const labels = `{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"}`
	return fmt.Sprintf("nodelvm_volume_filesystem_%s_bytes%s %dx360\nnodelvm_volume_filesystem_%s_bytes%s %dx360", name, labels, value, whole, labels, of)
}

func onVolume(condition string) string {
	return `nodelvm_volume_condition{node="n",condition="` + condition + `",vg="vg",lv="pvc-1",claim="shop/data"} 1x360`
}

func onGroup(condition string) string {
	return `nodelvm_volume_condition{node="n",condition="` + condition + `",vg="vg",lv="",claim=""} 1x360`
}

func TestAlertsFireWhereTheyShould(t *testing.T) {
	rules := alerts(t)
	for _, rule := range rules {
		t.Run(rule.Alert, func(t *testing.T) {
			if fired := firing(t, rule, healthy); len(fired) > 0 {
				t.Errorf("fires where all is well: %v", fired)
			}
			test, ok := sick[rule.Alert]
			if !ok {
				t.Fatal("no case shows it firing")
			}
			fired := firing(t, rule, test.series)
			if len(fired) != 1 {
				t.Fatalf("fires %d times on\n%s", len(fired), test.series)
			}
			for name, text := range rule.Annotations {
				said := expand(t, text, fired[0])
				if strings.Contains(said, "no value") || strings.Contains(said, "  ") || name == "description" && !strings.Contains(said, test.says) {
					t.Errorf("%s says %q; want it to say %q", name, said, test.says)
				}
			}
		})
	}
	if len(rules) != len(sick) {
		t.Errorf("%d alerts, %d cases", len(rules), len(sick))
	}
}

// TestAlertsAreExplained: each alert has a severity and a runbook with all its parts, and each runbook its alert.
func TestAlertsAreExplained(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docsDir, "howto", "runbooks.md"))
	must(t, err)
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	for _, rule := range alerts(t) {
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", rule.Alert, s)
		}
		if want := "https://github.com/nodelvm/nodelvm/blob/main/docs/howto/runbooks.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s points to %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		for _, part := range []string{"**Meaning.**", "**Diagnosis.**", "**Mitigation.**"} {
			if !strings.Contains(sections[rule.Alert], part) {
				t.Errorf("the runbook of %s lacks %s", rule.Alert, part)
			}
		}
		delete(sections, rule.Alert)
	}
	for title := range sections {
		t.Errorf("runbook %s has no alert", title)
	}
}

// TestAlertsAskForMetricsThatExist: docs/reference/metrics.md lists what the driver registers, which a test of the
// driver's checks; up is Prometheus' own.
func TestAlertsAskForMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	for _, rule := range alerts(t) {
		expr, err := language.ParseExpr(rule.Expr)
		must(t, err)
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok && !known[s.Name] {
				t.Errorf("%s reads %s, which no process serves", rule.Alert, s.Name)
			}
			return nil
		})
	}
}

// knownMetrics are the names of the series that the driver serves.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docsDir, "reference", "metrics.md"))
	must(t, err)
	known := map[string]bool{"up": true}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|[^|]*\\| (histogram)?").FindAllStringSubmatch(string(page), -1) {
		known[row[1]] = true
		if row[2] != "" {
			known[row[1]+"_count"], known[row[1]+"_bucket"] = true, true
		}
	}
	return known
}

// language is the language as Prometheus has it without any feature flag.
var language = parser.NewParser(parser.Options{})

// alerts reads the rules strictly, as promtool check rules does.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	must(t, err)
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, language, slog.New(slog.NewTextHandler(io.Discard, nil)))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) == 0 {
		t.Fatalf("groups %+v", groups)
	}
	return groups.Groups[0].Rules
}

// firing tells which series an alert fires for after six hours of these series: those for which its expression has held
// at each minute of its time.
func firing(t *testing.T, rule rulefmt.Rule, series string) []promql.Sample {
	t.Helper()
	samples := load(t, series)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 100000, Timeout: time.Minute, Parser: language})
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	var held map[string]promql.Sample
	end := time.Unix(0, 0).Add(6 * time.Hour)
	for at := end.Add(-time.Duration(rule.For)); !at.After(end); at = at.Add(time.Minute) {
		query, err := engine.NewInstantQuery(t.Context(), samples, nil, rule.Expr, at)
		must(t, err)
		vector, err := query.Exec(t.Context()).Vector()
		must(t, err)
		now := map[string]promql.Sample{}
		for _, sample := range vector {
			if key := sample.Metric.String(); held == nil || held[key].Metric.Len() > 0 {
				now[key] = sample
			}
		}
		held = now
		query.Close()
	}
	return slices.Collect(maps.Values(held))
}

// expand makes the text that Prometheus would send.
func expand(t *testing.T, text string, sample promql.Sample) string {
	t.Helper()
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	head := "{{$labels := .Labels}}{{$value := .Value}}"
	said, err := template.NewTemplateExpander(t.Context(), head+text, "annotation", data, 0, nil, nil, nil).Expand()
	if err != nil {
		t.Error(err)
	}
	return said
}

// must ends the test at once if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
