package cluster

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestCountRequests(t *testing.T) {
	const user = `"user":{"extra":{"authentication.kubernetes.io/node-name":["node-1"]}}`
	const log = `{"stage":"ResponseComplete","verb":"update","userAgent":"csi-provisioner/v6","requestReceivedTimestamp":"2026-11-21T19:00:01.5Z","objectRef":{"resource":"csistoragecapacities"},` + user + `}
{"stage":"ResponseStarted","verb":"watch","userAgent":"nodelvm","requestReceivedTimestamp":"2026-11-21T19:00:02Z","objectRef":{"resource":"persistentvolumeclaims"},` + user + `}
{"stage":"ResponseComplete","verb":"watch","userAgent":"nodelvm","requestReceivedTimestamp":"2026-11-21T19:00:02Z","objectRef":{"resource":"persistentvolumeclaims"},` + user + `}
{"stage":"ResponseComplete","verb":"patch","userAgent":"nodelvm","requestReceivedTimestamp":"2026-11-21T19:00:03Z","objectRef":{"resource":"persistentvolumeclaims","subresource":"status"},` + user + `}
`
	from := time.Date(2026, 11, 21, 19, 0, 1, 0, time.UTC)
	counts, err := countRequests(strings.NewReader(log), from, from.Add(2*time.Second))
	want := map[APIRequest]int{
		{"node-1", "csi-provisioner", "update", "csistoragecapacities"}: 1,
		{"node-1", "nodelvm", "watch", "persistentvolumeclaims"}:        1, // the watch's end does not count; the patch is later
	}
	if err != nil || !maps.Equal(counts, want) {
		t.Errorf("%v, %v, want %v", counts, err, want)
	}
}
