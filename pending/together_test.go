package pending

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestWaitingClaimsOfAPod: the waiting claims of a pod need one node together. The claim of these facts requests 6 GiB; the nodes have 10
// and 8 GiB.
func TestWaitingClaimsOfAPod(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *Facts)
		want   string
	}{
		"fit apart only": {func(f *Facts) { f.Waiting = []Waiting{{"wal", "local", 5 * gib}} },
			"no node can have the volume\nfix: request at most 5 GiB, or add disks to node-1 or delete volumes there\n" +
				"node-1: the pod's claims data, wal request 11 GiB together, and it has capacity for 10 GiB of StorageClass local\n" +
				"node-2: the pod's claims data, wal request 11 GiB together, and it has capacity for 8 GiB of StorageClass local"},
		"fit together on one": {func(f *Facts) { f.Waiting = []Waiting{{"wal", "local", 4 * gib}} },
			"node-1 has capacity for each waiting claim of the pod"},
		"no room for another": {func(f *Facts) { f.Waiting = []Waiting{{"wal", "local", 10 * gib}} }, "fix: add disks to node-1, or delete volumes there"},
		"other class in the same group": {func(f *Facts) {
			f.Waiting = []Waiting{{"wal", "mirrored", 5 * gib}}
			eachNode(f, func(n *Node) {
				n.OnlyGroup, n.Free = map[string]lvm.VGName{"mirrored": "vg-data"}, map[lvm.VGName]lvm.Bytes{"vg-data": 10 * gib}
			})
		}, "the pod's claims data, wal request 11 GiB together, and volume group vg-data has 10 GiB free"},
		"other class in another group": {func(f *Facts) {
			f.Waiting = []Waiting{{"wal", "mirrored", 5 * gib}}
			eachNode(f, func(n *Node) {
				n.OnlyGroup, n.Free = map[string]lvm.VGName{"mirrored": "vg-wal"}, map[lvm.VGName]lvm.Bytes{"vg-data": 10 * gib}
			})
		}, "node-1 has capacity for each waiting claim"},
		"the selected node has reserved capacity": {func(f *Facts) {
			f.Waiting, f.Claim.Annotations[api.AnnotationSelectedNode] = []Waiting{{"wal", "local", 5 * gib}}, "node-1"
		}, "node node-1 is selected for the volume, and nothing on it prevents the volume"},
	} {
		f := twoNodes()
		test.change(&f)
		if got := text(Explain(f)); !strings.Contains(got, test.want) {
			t.Errorf("%s: no %q in\n%s", name, test.want, got)
		}
	}
}
