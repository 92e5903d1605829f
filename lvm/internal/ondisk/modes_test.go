package ondisk

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// inEachMode runs a test of the facts about devices on a captured scenario, for each way in which a CheckedReader gets a group. These
// are the direct reading, and LVM's report: because only LVM can read the metadata, or because the two differed once.
func inEachMode(t *testing.T, scenario string, test func(t *testing.T, node fixture.TestNode, disks *Disks, r lvm.Reader)) {
	for mode, c := range map[string]struct {
		refuses bool
		off     string
	}{"direct": {}, "only LVM can read it": {refuses: true}, "direct reads are off": {off: "they differ"}} {
		t.Run(mode, func(t *testing.T) {
			node := fixture.NewTestNode(t)
			node.Plug(t, "testdata/groups/"+scenario)
			disks := disksOf(node)
			var direct lvm.Reader = disks
			if c.refuses {
				direct = refusing{disks}
			}
			whole := readNode(node, t)
			report := func(_ context.Context, devices []string) (lvm.State, error) { return reportOf(whole, devices), nil }
			test(t, node, disks, &CheckedReader{Direct: direct, Report: report, Log: slog.New(slog.DiscardHandler), Off: c.off})
		})
	}
}

// refusing is a direct reader to which no group's metadata is readable.
type refusing struct{ *Disks }

func (r refusing) Read(ctx context.Context) (lvm.State, error) {
	s, err := r.Disks.Read(ctx)
	if err == nil {
		s.Groups, err = nil, errUnsupported
	}
	return s, err
}

// reportOf is LVM's report of intact disks of which it may open these: it lacks a group without a disk.
func reportOf(whole lvm.State, devices []string) (report lvm.State) {
	for _, g := range whole.Groups {
		g.PVs = slices.Clone(g.PVs)
		seen := false
		for i := range g.PVs {
			pv := &g.PVs[i]
			pv.MissingFlag = false
			if !slices.Contains(devices, pv.Device) || !fixture.Exists(pv.Device) {
				pv.Missing, pv.Device = true, ""
			}
			seen = seen || !pv.Missing
		}
		if seen {
			report.Groups = append(report.Groups, g)
		}
	}
	return report
}
