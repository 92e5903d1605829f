package ondisk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			if c.want == "" {
				return
			}
			if !strings.Contains(words.String(), "level=ERROR") || !strings.Contains(words.String(), "differs from LVM's report") {
				t.Errorf("the log says %s", words.String())
			}
			s, err := r.Read(t.Context())
			if fixture.Must(t, err); firstPlace(s, c.report[0]) != "" {
				t.Errorf("what the disks tell is still believed: %+v", s)
			}
		})
	}
}

func firstPlace(a, b lvm.State) string { return compareStates(a, b, a) }

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

// TestCheckedReaderFallsBack: LVM's report supplies what the disks cannot.
func TestCheckedReaderFallsBack(t *testing.T) {
	disks := &fixture.Scripted{States: []lvm.State{{Groups: []lvm.Group{{UUID: "1", Name: "plain"}}, Devices: []string{"/dev/sda"}}}, Errs: errUnsupported}
	report := &fixture.Scripted{States: []lvm.State{{Groups: []lvm.Group{{UUID: "2", Name: "odd"}}}}}
	r := &CheckedReader{Direct: disks, Report: report.OnDevices, Log: slog.New(slog.DiscardHandler)}
	s, err := r.Read(t.Context())
	if fixture.Must(t, err); len(s.Groups) != 2 {
		t.Errorf("%+v", s)
	}
	report.Errs = errors.New("no lvm")
	if _, err := r.Read(t.Context()); !errors.Is(err, errUnsupported) || !strings.Contains(err.Error(), "no lvm") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reads := report.Reads
	if _, err := r.Read(ctx); err == nil || report.Reads != reads {
		t.Errorf("LVM is asked for a caller who left: %v", err)
	}
}

// TestReportSuppliesRefusedGroups: LVM's report supplies the groups that the direct reader refused, and overrules no other.
func TestReportSuppliesRefusedGroups(t *testing.T) {
	direct := lvm.State{Groups: []lvm.Group{{UUID: "1", Name: "b", Problem: "doubled"}}, UnreadDevices: []string{"sdx"}}
	report := lvm.State{Groups: []lvm.Group{{UUID: "2", Name: "a"}, {UUID: "1", Name: "b"}}}
	want := lvm.State{Groups: []lvm.Group{{UUID: "2", Name: "a"}, {UUID: "1", Name: "b", Problem: "doubled"}}, UnreadDevices: []string{"sdx"}}
	if diff := cmp.Diff(want, completedBy(direct, report)); diff != "" {
		t.Error(diff)
	}
}
