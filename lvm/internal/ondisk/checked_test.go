package ondisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

func TestCheckedReader(t *testing.T) {
	same := fixture.StateWith(4, nil)
	moved := fixture.StateWith(4, func(g *lvm.Group) { g.LVs[0].Segments[0].Areas[0].Start = 1 })
	for name, c := range map[string]struct {
		disks  []lvm.State
		report []lvm.State
		want   string
	}{
		"the same":                       {[]lvm.State{same}, []lvm.State{same}, ""},
		"empty is none, UTC is no other": {[]lvm.State{same}, []lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.Tags = []string{}; g.LVs[0].Created = time.Unix(5, 0).UTC() })}, ""},
		"an extent":                      {[]lvm.State{same}, []lvm.State{moved}, "volume group vg.LVs[a].Segments[0].Areas[0].Start: 0 on the disks, 1 in LVM's report"},
		"a volume more":                  {[]lvm.State{same}, []lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.LVs = append(g.LVs, lvm.LV{Name: "b"}) })}, "volume group vg.LVs: 1 on the disks, 2 in LVM's report"},
		"a moment":                       {[]lvm.State{same}, []lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.LVs[0].Created = time.Unix(6, 0) })}, "Created"},
		"a thin pool":                    {[]lvm.State{same}, []lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.LVs[0].Thin = &lvm.ThinPool{} })}, "Thin: false on the disks, true in LVM's report"},
		"changed before the report":      {[]lvm.State{same}, []lvm.State{fixture.StateWith(5, func(g *lvm.Group) { g.LVs = nil })}, ""},
		"changed after it, then settled": {[]lvm.State{same, fixture.StateWith(5, nil), fixture.StateWith(5, nil)}, []lvm.State{moved, fixture.StateWith(5, nil)}, ""},
		"changing all the time":          {[]lvm.State{same, fixture.StateWith(5, nil), fixture.StateWith(6, nil), fixture.StateWith(7, nil)}, []lvm.State{moved}, ""},
		"differs for a moment only":      {[]lvm.State{same}, []lvm.State{moved, same}, ""},
		"a disk with a double": {[]lvm.State{fixture.StateWith(4, func(g *lvm.Group) {
			g.Problem, g.PVs[0].DuplicateDevices = "it is exported", []string{"/dev/a", "/dev/b"}
		})}, []lvm.State{same}, ""},
		"two texts with one seqno":      {[]lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.Tie = "its disks differ" })}, []lvm.State{moved}, ""},
		"absent for LVM":                {[]lvm.State{same}, []lvm.State{{}}, "volume group vg (u) is on the disks, and not in LVM's report"},
		"absent on the disks":           {[]lvm.State{{UnreadDevices: []string{"sdx: no"}}}, []lvm.State{same}, "volume group vg (u) is in LVM's report, and not on the disks that can be read (sdx: no)"},
		"a silent disk: LVM would hang": {[]lvm.State{{Unresponsive: []string{"/dev/sdx"}}}, []lvm.State{same}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var words bytes.Buffer
			disks, report := &fixture.Scripted{States: c.disks}, &fixture.Scripted{States: c.report}
			r := &CheckedReader{Direct: disks, Report: report.OnDevices, Log: slog.New(slog.NewTextHandler(&words, nil))}
			r.Check(t.Context())
			if got := r.Difference(); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Fatalf("difference %q, want %q", got, c.want)
			}
			s, err := r.Read(t.Context())
			fixture.Must(t, err)
			if c.want == "" {
				if err := s.CheckComplete(); err != nil && len(s.UnreadDevices) > 0 || len(s.Groups) > 0 && s.Groups[0].Closed {
					t.Errorf("changes are refused: %+v", s)
				}
				return
			}
			if !strings.Contains(words.String(), "level=ERROR") || !strings.Contains(words.String(), c.want) {
				t.Errorf("the log says %s", words.String())
			}
			if len(s.Groups) == 0 {
				if s.CheckComplete() == nil || !strings.Contains(fmt.Sprint(s.UnreadDevices), c.want) {
					t.Errorf("the group is proven absent: %+v", s)
				}
				return
			}
			g := s.Groups[0]
			if lvm.CheckWritable(s, g) == nil || !g.Closed || !strings.Contains(g.Problem, c.want) || len(g.LVs) != 1 {
				t.Errorf("%+v", g)
			}
			if firstDifference("", reflect.ValueOf(g.PVs), reflect.ValueOf(c.disks[0].Groups[0].PVs))+firstDifference("", reflect.ValueOf(g.LVs), reflect.ValueOf(c.disks[0].Groups[0].LVs)) != "" {
				t.Errorf("the report supplied %+v", g)
			}
		})
	}
}

// TestCheckedReaderSchedule: a failed comparison is no difference, and the reader repeats it in the background when it is due.
func TestCheckedReaderSchedule(t *testing.T) {
	disks, report := &fixture.Scripted{States: []lvm.State{fixture.StateWith(4, nil)}}, &fixture.Scripted{States: []lvm.State{fixture.StateWith(4, nil)}, Errs: errors.New("no lvm")}
	var later []func(context.Context)
	r := &CheckedReader{Direct: disks, Report: report.OnDevices, Log: slog.New(slog.DiscardHandler), Later: func(f func(context.Context)) { later = append(later, f) }}
	read := func() {
		t.Helper()
		_, err := r.Read(t.Context())
		fixture.Must(t, err)
	}
	read()
	r.Check(t.Context())
	read()
	if len(later) != 0 || r.Difference() != "" {
		t.Fatalf("%d comparisons are under way, difference %q", len(later), r.Difference())
	}
	r.due = time.Now().Add(-time.Second)
	report.States, report.Errs = []lvm.State{fixture.StateWith(4, func(g *lvm.Group) { g.Name = "other" })}, nil
	read()
	read()
	if len(later) != 1 {
		t.Fatalf("%d comparisons are under way", len(later))
	}
	later[0](t.Context())
	if r.Difference() == "" {
		t.Error("the comparison was not made")
	}
}

// TestDifferenceEnds: the group can be changed once a comparison finds that the readings agree, and not before: not while a comparison fails,
// or is impossible.
func TestDifferenceEnds(t *testing.T) {
	moved := fixture.StateWith(4, func(g *lvm.Group) { g.LVs[0].Segments[0].Areas[0].Start = 1 })
	disks, report := &fixture.Scripted{States: []lvm.State{fixture.StateWith(4, nil)}}, &fixture.Scripted{States: []lvm.State{moved}}
	r := &CheckedReader{Direct: disks, Report: report.OnDevices, Log: slog.New(slog.DiscardHandler)}
	closed := func(what string, want bool) {
		t.Helper()
		r.Check(t.Context())
		s, err := r.Read(t.Context())
		if fixture.Must(t, err); s.Groups[0].Closed != want || (r.Difference() != "") != want {
			t.Errorf("%s: closed %v, difference %q", what, s.Groups[0].Closed, r.Difference())
		}
	}
	closed("they differ", true)
	report.Errs = errors.New("no lvm")
	closed("without a report", true)
	report.Errs, report.States = nil, []lvm.State{fixture.StateWith(4, nil)}
	disks.States = []lvm.State{fixture.StateWith(4, nil)}
	disks.States[0].Unresponsive = []string{"/dev/sdx"}
	closed("a disk does not answer", true)
	disks.States = []lvm.State{fixture.StateWith(4, nil), fixture.StateWith(5, nil)}
	closed("it changes", true)
	report.States = []lvm.State{fixture.StateWith(5, nil)}
	closed("they agree", false)
}
