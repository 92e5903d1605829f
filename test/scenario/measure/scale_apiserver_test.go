package measure

import (
	"slices"
	"testing"
)

// Lines as the API server's /metrics has them.
const apiServerMetrics = `# TYPE apiserver_watch_events_sizes histogram
apiserver_longrunning_requests{component="apiserver",group="",resource="persistentvolumes",scope="cluster",subresource="",verb="WATCH",version="v1"} 5
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="resource",subresource="log",verb="GET",version="v1"} 1
apiserver_watch_events_sizes_bucket{group="",resource="persistentvolumes",version="v1",le="1024"} 3
apiserver_watch_events_sizes_sum{group="",resource="persistentvolumes",version="v1"} 4096
apiserver_watch_events_sizes_count{group="",resource="persistentvolumes",version="v1"} 3
apiserver_watch_events_total{group="",resource="persistentvolumes",version="v1"} 3
apiserver_watch_events_total{group="",resource="leases",version="v1"} 1000
process_cpu_seconds_total 12.5
`

func TestReadAPIServer(t *testing.T) {
	is, err := readAPIServer(apiServerMetrics)
	if err != nil || is.cpu != 12.5 {
		t.Fatalf("%+v, %v", is, err)
	}
	before := &apiServer{watches: map[string]watched{"persistentvolumes": {open: 4, events: 1, bytes: 2048}}}
	rows := is.rowsSince(before, 0.5)
	want := [][]string{{"persistentvolumes", "5", "1.00", "1.00"}, {"all", "5", "1.00", "1.00"}}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("%q, want %q", rows, want)
	}
	if _, err := readAPIServer("# nothing\n"); err == nil {
		t.Error("metrics without the processor time were accepted")
	}
}
