package lvmtest_test

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/conformance"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestConformance runs the suite over the fake. The suite uses each of lvcreate's options that a parameter of a StorageClass has: real LVM
// sees no other.
func TestConformance(t *testing.T) {
	var nodes []*lvmtest.Node
	conformance.Run(t, func(*testing.T) hosttest.Fixture {
		nodes = append(nodes, hosttest.NewNode())
		return hosttest.OnFake(nodes[len(nodes)-1])
	})
	used := map[string]bool{"": true}
	for _, node := range nodes {
		for _, command := range node.Commands() {
			for _, word := range command.Args {
				used[word] = true
			}
		}
	}
	for _, p := range lvm.Parameters {
		if !used[p.Option] {
			t.Errorf("no case of package conformance creates a volume with %s (%s)", p.Name, p.Option)
		}
	}
}
