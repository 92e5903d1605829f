package lvm

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckedReader(t *testing.T) {
	same := told(4, nil)
	moved := told(4, func(g *Group) { g.LVs[0].Segments[0].Areas[0].Start = 1 })
	for name, c := range map[string]struct {
		disks  []State
		report []State
		want   string
	}{
		"the same":                       {[]State{same}, []State{same}, ""},
		"empty is none, UTC is no other": {[]State{same}, []State{told(4, func(g *Group) { g.Tags = []string{}; g.LVs[0].Created = time.Unix(5, 0).UTC() })}, ""},
		"an extent":                      {[]State{same}, []State{moved}, "volume group vg.LVs[a].Segments[0].Areas[0].Start: 0 on the disks, 1 in LVM's report"},
		"a volume more":                  {[]State{same}, []State{told(4, func(g *Group) { g.LVs = append(g.LVs, LV{Name: "b"}) })}, "volume group vg.LVs: 1 on the disks, 2 in LVM's report"},
		"a moment":                       {[]State{same}, []State{told(4, func(g *Group) { g.LVs[0].Created = time.Unix(6, 0) })}, "Created"},
		"a thin pool":                    {[]State{same}, []State{told(4, func(g *Group) { g.LVs[0].Thin = &ThinPool{} })}, "Thin: false on the disks, true in LVM's report"},
		"changed before the report":      {[]State{same}, []State{told(5, func(g *Group) { g.LVs = nil })}, ""},
		"changed after it, then settled": {[]State{same, told(5, nil), told(5, nil)}, []State{moved, told(5, nil)}, ""},
		"changing all the time":          {[]State{same, told(5, nil), told(6, nil), told(7, nil)}, []State{moved}, ""},
		"differs for a moment only":      {[]State{same}, []State{moved, same}, ""},
		"a disk with a double":           {[]State{told(4, func(g *Group) { g.Problem = duplicateSentence("p", "/dev/a", "/dev/b") })}, []State{same}, ""},
		"absent for LVM":                 {[]State{same}, []State{{}}, "volume group vg (u) is on the disks, and not in LVM's report"},
		"absent on the disks":            {[]State{{Unread: []string{"sdx: no"}}}, []State{same}, "volume group vg (u) is in LVM's report, and not on the disks that can be read (sdx: no)"},
		"a silent disk: LVM would hang":  {[]State{{Silent: []string{"/dev/sdx"}}}, []State{same}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var words bytes.Buffer
			disks, report := &scripted{states: c.disks}, &scripted{states: c.report}
			r := &checkedReader{direct: disks, report: report.onDevices, log: slog.New(slog.NewTextHandler(&words, nil))}
			r.check(t.Context())
			if got := r.difference(); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Fatalf("difference %q, want %q", got, c.want)
			}
			if c.want == "" {
				return
			}
			if !strings.Contains(words.String(), "level=ERROR") || !strings.Contains(words.String(), "differs from LVM's report") {
				t.Errorf("the log says %s", words.String())
			}
			s, err := r.Read(t.Context())
			if must(t, err); firstPlace(s, c.report[0]) != "" {
				t.Errorf("what the disks tell is still believed: %+v", s)
			}
		})
	}
}

func firstPlace(a, b State) string { return compareStates(a, b, a) }

// A comparison that cannot be made is no difference; and it is made again, behind its callers' backs, when it is due.
func TestCheckedReaderSchedule(t *testing.T) {
	disks, report := &scripted{states: []State{told(4, nil)}}, &scripted{states: []State{told(4, nil)}, errs: errors.New("no lvm")}
	var later []func(context.Context)
	r := &checkedReader{direct: disks, report: report.onDevices, log: slog.New(slog.DiscardHandler), later: func(f func(context.Context)) { later = append(later, f) }}
	read := func() {
		t.Helper()
		_, err := r.Read(t.Context())
		must(t, err)
	}
	read()
	r.check(t.Context())
	read()
	if len(later) != 0 || r.difference() != "" {
		t.Fatalf("%d comparisons are under way, difference %q", len(later), r.difference())
	}
	r.due = time.Now().Add(-time.Second)
	report.states, report.errs = []State{told(4, func(g *Group) { g.Name = "other" })}, nil
	read()
	read()
	if len(later) != 1 {
		t.Fatalf("%d comparisons are under way", len(later))
	}
	later[0](t.Context())
	if r.difference() == "" {
		t.Error("the comparison was not made")
	}
}

// What the disks cannot tell is asked of LVM.
func TestCheckedReaderFallsBack(t *testing.T) {
	disks := &scripted{states: []State{{Groups: []Group{{UUID: "1", Name: "plain"}}, Devices: []string{"/dev/sda"}}}, errs: errUnsupported}
	report := &scripted{states: []State{{Groups: []Group{{UUID: "2", Name: "odd"}}}}}
	r := &checkedReader{direct: disks, report: report.onDevices, log: slog.New(slog.DiscardHandler)}
	s, err := r.Read(t.Context())
	if must(t, err); len(s.Groups) != 2 {
		t.Errorf("%+v", s)
	}
	report.errs = errors.New("no lvm")
	if _, err := r.Read(t.Context()); !errors.Is(err, errUnsupported) || !strings.Contains(err.Error(), "no lvm") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reads := report.reads
	if _, err := r.Read(ctx); err == nil || report.reads != reads {
		t.Errorf("LVM is asked for a caller who left: %v", err)
	}
}

// LVM's report fills in the groups that the disks' reader refused, and overrules it nowhere.
func TestCompletedBy(t *testing.T) {
	direct := State{Groups: []Group{{UUID: "1", Name: "b", Problem: "doubled"}}, Unread: []string{"sdx"}}
	report := State{Groups: []Group{{UUID: "2", Name: "a"}, {UUID: "1", Name: "b"}}}
	want := State{Groups: []Group{{UUID: "2", Name: "a"}, {UUID: "1", Name: "b", Problem: "doubled"}}, Unread: []string{"sdx"}}
	if diff := cmp.Diff(want, completedBy(direct, report)); diff != "" {
		t.Error(diff)
	}
}
