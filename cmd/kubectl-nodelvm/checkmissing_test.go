package main

import (
	"errors"
	"testing"

	"github.com/nodelvm/nodelvm/report"
)

// TestPartialListProvesNoLoss: a volume that an incomplete report lacks is not reported as lost.
func TestPartialListProvesNoLoss(t *testing.T) {
	for name, gap := range map[string]func(page *report.Node){
		"a driver that starts":    func(page *report.Node) { page.NotReady = "the driver starts" },
		"disks that are not read": func(page *report.Node) { page.Unknown = []string{report.UnknownGroups + "a disk hangs"} },
		"a disk that is silent":   func(page *report.Node) { page.Unread = []string{"/dev/sdc does not answer"} },
	} {
		f := sound()
		page := &f.answers[0].page
		page.Volumes, page.Classes[0].Offers, f.answers[1].page.Classes[0].Offers = nil, nil, nil
		gap(page)
		f.answers[1].page.NotReady = "the same"
		for _, x := range examine(f).Findings {
			if x.Check == "lost volumes" || x.Check == "groups of classes" || x.Check == "capacity" {
				t.Errorf("%s: %+v", name, x)
			}
		}
		if rows := volumeRowsOf(f.volumes, nil, f.answers); rows[0].Status[0] != "unknown" {
			t.Errorf("%s: %+v", name, rows[0])
		}
		if rows := orphanRows(f.answers); len(rows) != 2 || rows[0].Reason != reasonUnknown {
			t.Errorf("%s: orphans %+v", name, rows)
		}
		if err := drainable(nil, errors.New(f.answers[0].incomplete())); err == nil || errors.Is(err, errFound) {
			t.Errorf("%s: the node may be drained: %v", name, err)
		}
	}
	if drainable(nil, nil) != nil || drainable(nil, errNoDriverThere) != nil || !errors.Is(drainable(make([]leftRow, 1), nil), errFound) {
		t.Error("what is known is not told")
	}
}
