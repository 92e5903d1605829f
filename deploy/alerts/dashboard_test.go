package alerts

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

const dashboardFile = "../chart/nodelvm/files/dashboard.json"

// dashboard is what the tests read of Grafana's model.
type dashboard struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		Expr       string `json:"expr"`
		RefID      string `json:"refId"`
		Datasource struct {
			UID string `json:"uid"`
		} `json:"datasource"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	must(t, err)
	var d dashboard
	must(t, json.Unmarshal(text, &d))
	if len(d.Panels) < 20 {
		t.Fatalf("only %d panels were found", len(d.Panels))
	}
	return d
}

// recorded is a cluster of two nodes in which each panel has something to show, a value a minute for a day and more.
const recorded = `
up{node="n",container="nodelvm",endpoint="http"} 1x1500
up{node="m",container="nodelvm",endpoint="http"} 0x1500
up{namespace="nodelvm-system",pod="j",container="nodelvm-controller",endpoint="http"} 1x1500
nodelvm_volumes{node="n",state="ready"} 3x1500
nodelvm_volume_condition{node="n",condition="VolumeDegraded",vg="vg",lv="pvc-1",claim="shop/data"} 1x1500
nodelvm_physical_volume_missing{node="n",vg="vg",vg_uuid="u",pv_uuid="a"} 1x1500
nodelvm_physical_volume_info{node="n",vg="vg",vg_uuid="u",pv_uuid="a",device="/dev/sda",model="M",serial="S",slot="1"} 1x1500
nodelvm_volume_group_wipe_backlog_bytes{node="n",vg="vg",vg_uuid="u",claim_namespace="shop"} 20x1500
nodelvm_volume_group_free_bytes{node="n",vg="vg",vg_uuid="u"} 10000-1x1500
nodelvm_volume_group_size_bytes{node="n",vg="vg",vg_uuid="u"} 20000x1500
nodelvm_volume_group_volumes{node="n",vg="vg",vg_uuid="u"} 3x1500
nodelvm_volume_group_blocked_seconds{node="n",vg="vg",vg_uuid="u"} 5x1500
nodelvm_thin_pool_used_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 10+1x1500
nodelvm_thin_pool_size_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 5000x1500
nodelvm_thin_pool_provisioned_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 7000x1500
nodelvm_thin_pool_metadata_used_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 1x1500
nodelvm_thin_pool_metadata_size_bytes{node="n",vg="vg",vg_uuid="u",thin_pool="p"} 10x1500
nodelvm_volume_filesystem_available_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 20x1500
nodelvm_volume_filesystem_size_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x1500
nodelvm_volume_filesystem_inodes_used{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 20x1500
nodelvm_volume_filesystem_inodes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x1500
nodelvm_volume_size_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x1500
nodelvm_volume_allocated_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 50x1500
nodelvm_volume_reads_completed_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+600x1500
nodelvm_volume_writes_completed_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+1200x1500
nodelvm_volume_read_bytes_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+60000x1500
nodelvm_volume_written_bytes_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+120000x1500
nodelvm_volume_read_time_seconds_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+6x1500
nodelvm_volume_write_time_seconds_total{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 0+6x1500
nodelvm_volume_read_iops_limit{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x1500
nodelvm_volume_write_iops_limit{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 100x1500
nodelvm_volume_read_bandwidth_limit_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 4000x1500
nodelvm_volume_write_bandwidth_limit_bytes{node="n",vg="vg",lv="pvc-1",claim="shop/data",claim_namespace="shop"} 4000x1500
nodelvm_operations_in_flight{node="n"} 2x1500
nodelvm_orphaned_volumes{node="n",reason="unreferenced"} 1x1500
csi_plugin_operations_seconds_count{node="n",driver_name="nodelvm.io",method_name="NodeStageVolume",grpc_status_code="Internal"} 0+1x1500
csi_plugin_operations_seconds_bucket{node="n",driver_name="nodelvm.io",method_name="NodeStageVolume",grpc_status_code="OK",le="1"} 0+1x1500
csi_plugin_operations_seconds_bucket{node="n",driver_name="nodelvm.io",method_name="NodeStageVolume",grpc_status_code="OK",le="+Inf"} 0+1x1500
nodelvm_lvm_command_duration_seconds_bucket{node="n",command="lvcreate",exit_code="0",le="1"} 0+1x1500
nodelvm_lvm_command_duration_seconds_bucket{node="n",command="lvcreate",exit_code="0",le="+Inf"} 0+1x1500
`

// values are the results that a panel must have on the recorded series, where the query does more than select.
var values = map[string]float64{
	"Drivers up": 1, "Drivers down": 1, "Conditions": 1, "Disks missing": 1, "Wipe backlog": 20, "Volume groups: used": 0.575,
	"Days until a group is full": 8500. / 60 / 24, "Days until a thin pool is full": (5000. - 1510 + 8500) / 60 / 24, "Fullest file systems": 0.8,
	"File systems with the fewest free inodes": 0.2, "Disks": 1, "Controller up": 1, "CSI calls that failed": 1. / 60,
}

// TestDashboardQueries: each query of each panel finds something in the recorded series, and those that calculate get the right value.
func TestDashboardQueries(t *testing.T) {
	samples := load(t, recorded)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: language})
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	checked := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			query, err := engine.NewInstantQuery(t.Context(), samples, nil, substituted(target.Expr), time.Unix(1500*60, 0))
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			vector, err := query.Exec(t.Context()).Vector()
			if err != nil || len(vector) == 0 {
				t.Errorf("%s finds nothing with %s: %v", p.Title, target.Expr, err)
				continue
			}
			if want, calculated := values[p.Title]; calculated {
				checked++
				if got := vector[0].F; len(vector) != 1 || got < want*0.999 || got > want*1.001 {
					t.Errorf("%s shows %v, want %g", p.Title, vector, want)
				}
			}
		}
	}
	if checked != len(values) {
		t.Errorf("%d of %d values were checked", checked, len(values))
	}
}

// substituted replaces Grafana's variables.
func substituted(expr string) string {
	return strings.NewReplacer("$node", ".*", "$__rate_interval", "5m").Replace(expr)
}

// TestDashboardAsksForMetricsThatExist: docs/reference/metrics.md lists what the driver registers.
func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	d := readDashboard(t)
	expressions := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions[p.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, v := range d.Templating.List {
		if name, _, found := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ","); found && !known[name] {
			t.Errorf("the variable %s asks for %s, which the driver does not serve", v.Name, name)
		}
	}
	for where, text := range expressions {
		expr, err := language.ParseExpr(substituted(text))
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok && !known[s.Name] {
				t.Errorf("%s asks for %s, which the driver does not serve", where, s.Name)
			}
			return nil
		})
	}
}

// TestDashboardLayout: panels have distinct IDs, a description, and a place that no other panel covers.
func TestDashboardLayout(t *testing.T) {
	d := readDashboard(t)
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other := ids[p.ID]; other != "" || p.ID == 0 {
			t.Errorf("%s has the ID %d, as %q has", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("%s has no description or no query", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s names the data source %q", p.Title, target.Datasource.UID)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s covers %q, or is outside the grid", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	if d.UID != "nodelvm" {
		t.Errorf("the dashboard's UID is %q: links to it would break", d.UID)
	}
}
