package accepted

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var must = check.Must

// recordIn is a record of a node with another storage driver.
func recordIn(t *testing.T, dir string) *Record {
	t.Helper()
	for _, path := range []string{"kubelet/pods", "kubelet/plugins/nodelvm.io", "kubelet/plugins/kubernetes.io/csi", "kubelet/plugins/other.example"} {
		must(t, os.MkdirAll(filepath.Join(dir, path), 0o700))
	}
	return &Record{File: filepath.Join(dir, "accepted.json"), KubeletDir: filepath.Join(dir, "kubelet"), Driver: "nodelvm.io", Log: slog.New(slog.DiscardHandler)}
}

func admit(r *Record, c Candidate) Verdict {
	r.Refresh()
	return r.Admit([]Candidate{c}, nil)[0]
}

func disk(wwid string) Candidate {
	return Candidate{Device: "/dev/" + wwid, PV: pv, Identity: Identity{WWID: wwid}}
}

// TestFirstUseIsOnce: the first run accepts what is there, even nothing, and ends the first use for all later runs.
func TestFirstUseIsOnce(t *testing.T) {
	dir := t.TempDir()
	r := recordIn(t, dir)
	if r.Refresh(); !r.First() {
		t.Error("a new node is not new")
	}
	r.Admit(nil, nil)
	for _, next := range []*Record{r, recordIn(t, dir)} {
		if v := admit(next, disk("a")); v.Reason != "" || next.First() {
			t.Errorf("after the first use: %+v", v)
		}
	}
}

// TestLostRecord: without a file, or with a damaged one, the first use begins again, so that nothing of this driver is shut out.
func TestLostRecord(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"torn":    func(path string) error { return os.Truncate(path, 20) },
		"later": func(path string) error {
			return os.WriteFile(path, []byte(`{"version":9,"physicalVolumes":[]}`), 0o600)
		},
	} {
		dir := t.TempDir()
		r := recordIn(t, dir)
		if v := admit(r, disk("a")); v.Reason != FirstUse {
			t.Fatalf("%+v", v)
		}
		must(t, spoil(r.File))
		for _, next := range []*Record{r, recordIn(t, dir)} {
			if v := admit(next, disk("a")); v.Reason != FirstUse && !next.Names(pv, Identity{WWID: "a"}) {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if entries, err := load(r.File); err != nil || len(entries) != 1 {
			t.Errorf("%s: then the file has %+v, %v", name, entries, err)
		}
	}
}

// TestRecordThatCannotBeRead: a running driver keeps what it knows while the file cannot be read. That is no first use: it would accept what others
// can write.
func TestRecordThatCannotBeRead(t *testing.T) {
	r := recordIn(t, t.TempDir())
	if v := admit(r, disk("a")); v.Reason != FirstUse {
		t.Fatalf("%+v", v)
	}
	must(t, os.Remove(r.File))
	must(t, os.Mkdir(r.File, 0o700)) // as read(2) fails with EISDIR, it may fail with EIO
	if v := admit(r, disk("b")); v.Reason != "" || r.First() || !r.Names(pv, Identity{WWID: "a"}) {
		t.Errorf("%+v; the record has %+v", v, r.Entries())
	}
}

// TestRecordThatCannotBeWritten: what is accepted stays so, the first use ends nevertheless, and the log says it once.
func TestRecordThatCannotBeWritten(t *testing.T) {
	r, log := recordIn(t, t.TempDir()), &bytes.Buffer{}
	file := r.File
	r.Log, r.File = slog.New(slog.NewTextHandler(log, nil)), filepath.Join(filepath.Dir(file), "absent/accepted.json")
	if v := admit(r, disk("a")); v.Reason != FirstUse || !r.Names(pv, Identity{WWID: "a"}) {
		t.Errorf("%+v", v)
	}
	if v := admit(r, Candidate{PV: "other", Identity: Identity{WWID: "b"}}); v.Reason != "" {
		t.Errorf("the first use has no end: %+v", v)
	}
	if n := strings.Count(log.String(), "cannot write"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	must(t, os.Mkdir(filepath.Dir(r.File), 0o700))
	must(t, r.Accept(Entry{PV: "third", Identity: Identity{WWID: "c"}, Reason: Command}))
	if entries, err := load(r.File); err != nil || len(entries) != 2 {
		t.Errorf("once it can be written, the file has %+v, %v", entries, err)
	}
}

// TestReadOnlyRecord: a command beside the driver decides alike and writes nothing.
func TestReadOnlyRecord(t *testing.T) {
	r := recordIn(t, t.TempDir())
	r.ReadOnly = true
	if v := admit(r, disk("a")); v.Reason != FirstUse || !r.Names(pv, Identity{WWID: "a"}) {
		t.Errorf("%+v", v)
	}
	if _, err := os.Stat(r.File); err == nil {
		t.Error("it wrote the file")
	}
}

// TestCommandIsNoticed: the driver follows what another process writes, at once, although it refused the device a moment ago.
func TestCommandIsNoticed(t *testing.T) {
	dir := t.TempDir()
	driver, command := recordIn(t, dir), recordIn(t, dir)
	driver.Refresh()
	driver.Admit(nil, nil)
	c := disk("a")
	if v := admit(driver, c); v.Reason != "" {
		t.Fatalf("%+v", v)
	}
	if _, since, valid := driver.Refused(c); !valid || time.Since(since) > time.Minute {
		t.Error("the driver asks again for each reading")
	}
	must(t, command.Accept(Entry{PV: pv, Device: c.Device, Identity: c.Identity, Reason: Command}))
	driver.Refresh()
	if _, _, valid := driver.Refused(c); valid || !driver.Names(pv, c.Identity) {
		t.Error("the driver does not notice the command")
	}
	forgotten, err := command.Forget(func(e Entry) bool { return e.PV == pv })
	if driver.Refresh(); err != nil || len(forgotten) != 1 || driver.Names(pv, c.Identity) {
		t.Errorf("forgotten %+v, %v", forgotten, err)
	}
}

// TestConcurrentWriters lose no entry of one another.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		r := recordIn(t, dir)
		all.Go(func() {
			for j := range 4 {
				if err := r.Accept(Entry{PV: string(rune('a'+i)) + string(rune('0'+j)), Identity: Identity{WWID: "w"}, Reason: Command}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if r := recordIn(t, dir); r.Names("a0", Identity{WWID: "w"}) {
		t.Error("it was read before Refresh")
	} else if r.Refresh(); len(r.Entries()) != 32 {
		t.Errorf("%d entries", len(r.Entries()))
	}
	left, err := os.ReadDir(dir)
	if must(t, err); slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "accepted.json.") }) {
		t.Errorf("files left: %v", left)
	}
}

// TestBounds: neither the file nor the memory of refusals grows without limit.
func TestBounds(t *testing.T) {
	r := recordIn(t, t.TempDir())
	var many []Entry
	for i := range maxEntries {
		many = append(many, Entry{PV: time.Unix(int64(i), 0).String(), Identity: Identity{WWID: "w"}})
	}
	must(t, store(r.File, many))
	must(t, r.Accept(Entry{PV: "last", Identity: Identity{WWID: "w"}}))
	if entries, err := load(r.File); err != nil || len(entries) != maxEntries || entries[maxEntries-1].PV != "last" {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	for i := range 2 * maxEntries {
		c := disk("x")
		c.PV = "forged " + time.Unix(int64(i), 0).String()
		r.Admit([]Candidate{c}, nil)
	}
	if len(r.refused) > maxEntries+1 {
		t.Errorf("%d refusals are kept", len(r.refused))
	}
	if store(r.File, append(many, many...)) == nil {
		t.Error("a file that no driver reads was written")
	}
}

// TestOtherDrivers: any plugin of the kubelet counts, and what cannot be read counts too.
func TestOtherDrivers(t *testing.T) {
	for path, want := range map[string][]string{
		"plugins/ebs.csi.aws.com":                     {"ebs.csi.aws.com"},
		"plugins/kubernetes.io/iscsi":                 {"iscsi"},
		"plugins/kubernetes.io~local-volume":          {"kubernetes.io~local-volume"},
		"plugins/kubernetes.io/csi":                   nil,
		"plugins_registry/disk.csi.example-reg.sock":  {"disk.csi.example"},
		"plugins_registry/nodelvm.io-reg.sock":        nil,
		"plugins/nodelvm.io":                          nil,
		"pods/0000/volumes/kubernetes.io~empty-dir/x": nil,
	} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "pods"), 0o700))
		must(t, os.MkdirAll(filepath.Join(dir, path), 0o700))
		if got, err := otherDrivers(dir, "nodelvm.io"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := otherDrivers(t.TempDir(), "nodelvm.io"); err == nil {
		t.Error("a directory that is not the kubelet's has no plugins")
	}
	if got, err := otherDrivers("", "nodelvm.io"); got != nil || err != nil {
		t.Errorf("without a kubelet: %q, %v", got, err)
	}
}

// FuzzFile: any file is refused or read within its bounds, and what was read is written and read alike.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"version":1,"physicalVolumes":[]}`, `{"version":1,"physicalVolumes":[{"pvUUID":"x","device":"/dev/sda","wwid":"naa.1","reason":"command"}]}`,
		`{"version":1,"physicalVolumes":[{"device":"/dev/sda","place":"pci\u0000","partition":-1}]} x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parse(text)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "f")
		must(t, store(path, entries))
		again, err := load(path)
		if must(t, err); len(again) != len(entries) || len(entries) > maxEntries {
			t.Fatalf("%d entries of %d", len(again), len(entries))
		}
		for i, e := range entries {
			if again[i] != e || len(e.PV) > longest || !e.Same(e.Identity) {
				t.Errorf("%+v was written as %+v", e, again[i])
			}
		}
	})
}
