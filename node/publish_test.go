package node

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestRawPublishLooksAtTheState: a raw device whose deletion began is not published, also if it begins during the publication.
func TestRawPublishLooksAtTheState(t *testing.T) {
	for gone, want := range map[int][]string{1: nil, 2: {"create /target", "bind /dev/dm-3 /target writable", "unmount /target", "remove /target"}} {
		f := newFake()
		f.gone = gone
		if err := f.publish(t, rawBlock); lvm.KindOf(err) != lvm.KindNotFound || !strings.Contains(err.Error(), "deleting") {
			t.Errorf("published: %v", err)
		}
		f.expect(t, want...)
	}
}
