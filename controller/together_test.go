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
		"none":                    {nil, true},
		"with an invalid one":     {[]api.PodClaim{a, invalid}, true},
		"with a bound one":        {[]api.PodClaim{a, bound}, true},
	} {
		s, _, c := newPod(t)
		free := published(t, s, "vg-nvme")
		err := s.FitTogether(t.Context(), "shop", "web-uid", test.claims)
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
