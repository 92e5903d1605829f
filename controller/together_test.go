package controller

import (
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestFitTogether: claims whose volumes csi-provisioner requests for other claims keep their pod away from a node without capacity for all of
// them, and only those.
func TestFitTogether(t *testing.T) {
	a, b, small := claim("a", 25*lvm.GiB, "vg-nvme"), claim("b", 20*lvm.GiB, "vg-nvme"), claim("c", lvm.GiB, "vg-nvme")
	invalid, bound := claim("d", 0, "vg-nvme"), claim("e", 25*lvm.GiB, "vg-nvme")
	a.ByOthers, b.ByOthers, small.ByOthers, bound.Bound = true, true, true, true
	for name, test := range map[string]struct {
		claims []api.PodClaim
		fits   bool
	}{
		"both too large together": {[]api.PodClaim{a, b}, false},
		"fit":                     {[]api.PodClaim{a, small}, true},
		"one alone":               {[]api.PodClaim{a}, true},
		"with an invalid one":     {[]api.PodClaim{a, invalid}, true},
		"with a bound one":        {[]api.PodClaim{a, bound}, true},
	} {
		s, _, c := newPod(t)
		free := published(t, s, "vg-nvme")
		err := s.FitTogether(t.Context(), "shop", test.claims[0], api.PodClaims{Pods: []string{"web"}, PodUID: "web-uid", Claims: test.claims[1:]})
		room := published(t, s, "vg-nvme")
		if test.fits {
			if err != nil || room != free {
				t.Errorf("%s: %v; %s published, before %s", name, err, room, free)
			}
			continue
		}
		expectKind(t, err, lvm.KindInsufficientCapacity)
		if room != sizeOf(a)-1 {
			t.Errorf("%s: %d bytes published, want one less than the largest claim", name, room)
		}
		c.pass(withheldFor)
		if room := published(t, s, "vg-nvme"); room != free {
			t.Errorf("%s: after a while %s published, before %s", name, room, free)
		}
		if n := volumesOf(t, s); n != 0 {
			t.Errorf("%s: %d volumes", name, n)
		}
	}
}

// TestSourceOfAPeerOfASelectingClaim: a claim with a selector does not stay where a peer, which is a copy, cannot be.
func TestSourceOfAPeerOfASelectingClaim(t *testing.T) {
	for node, want := range map[string]lvm.Kind{"node-1": lvm.KindInternal, "node-2": lvm.KindInsufficientCapacity, "?": lvm.KindBusy} {
		a, b := claim("a", lvm.GiB, "vg-nvme"), claim("b", lvm.GiB, "vg-nvme")
		a.ByOthers, b.FromSnapshot = true, "nightly"
		s, pod, _ := newPod(t)
		pod.sources = map[string]string{"nightly": node}
		err := s.FitTogether(t.Context(), "shop", a, api.PodClaims{Pods: []string{"web"}, PodUID: "web-uid", Claims: []api.PodClaim{b}})
		if node == "node-1" {
			must(t, err)
			continue
		}
		expectKind(t, err, want, "the source of claim b")
	}
}
