//go:build reallvm

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// ledger records the commands of the driver and the admin on the real LVM, in order.
type ledger struct {
	mu       sync.Mutex
	commands []lvm.Command
}

func (l *ledger) note(c lvm.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commands = append(l.commands, c)
}

// replayed compares the fake with the real LVM beyond the suite: when the test has ended, it runs every command of the fixture
// again on a fake node with such disks, and each must end with the same exit status.
func replayed(t *testing.T, b hosttest.Fixture) hosttest.Fixture {
	ran := &ledger{}
	t.Cleanup(func() {
		replay := newReplay()
		for _, c := range ran.commands {
			replay.check(t, c)
		}
	})
	dir, run := t.TempDir(), b.Admin
	b.Start = func(t testing.TB) *hosttest.Driver {
		return reallvm.StartDriverWith(t, dir, func(cfg *lvm.Config) {
			observe := cfg.Observe
			cfg.Observe = func(c lvm.Command) { observe(c); ran.note(c) }
		})
	}
	b.Admin = func(t testing.TB, argv ...string) {
		t.Helper()
		run(t, argv...)
		ran.note(lvm.Command{Name: argv[0], Args: argv[1:]})
	}
	return b
}

// replay runs on a fake node the commands written for the real one, whose disks and volumes have other names and UUIDs.
type replay struct {
	node  *lvmtest.Node
	disks *strings.Replacer
	uuids map[string]string // of volumes: from the real one's to the fake one's
}

func newReplay() *replay {
	group := lvmtest.Group{Name: reallvm.Group, Tags: []string{"fast"}}
	for _, size := range reallvm.Sizes {
		group.Disks = append(group.Disks, lvm.Bytes(size-1)*lvm.MiB) // LVM's metadata takes one
	}
	r := &replay{node: lvmtest.NewNode(group), uuids: map[string]string{}}
	var pairs [][2]string
	for i, pv := range r.node.Groups()[0].PVs {
		pairs = append(pairs, [2]string{reallvm.Disks()[i], pv.Device})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return len(b[0]) - len(a[0]) }) // loop12 before loop1
	var words []string
	for _, p := range pairs {
		words = append(words, p[0], p[1])
	}
	r.disks = strings.NewReplacer(words...)
	return r
}

func (r *replay) check(t *testing.T, c lvm.Command) {
	t.Helper()
	switch c.Name {
	case "fullreport":
		return // other tests compare the two readers
	case "vgrename":
		r.node.Change(c.Args[0], func(g *lvm.Group) { g.Name = lvm.VGName(c.Args[1]) })
		return
	case "lvrename":
		r.node.Rename(c.Args[0], c.Args[1], c.Args[2])
		return
	}
	if code := r.run(append([]string{c.Name}, c.Args...)); code != c.ExitCode {
		t.Errorf("exit status %d of the real LVM, %d of the fake: lvm %s %s", c.ExitCode, code, c.Name, strings.Join(c.Args, " "))
	}
}

// run runs the command on the fake, and returns its exit status.
func (r *replay) run(argv []string) int {
	err := r.node.Admin(r.translate(argv)...)
	if failed := (*lvm.ExitError)(nil); errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}

var seqno = regexp.MustCompile(`vg_seqno=[0-9]+`)

var lvUUID = regexp.MustCompile(`lv_uuid=([A-Za-z0-9-]{38})`)

// translate writes an argument vector for the fake. It learns a volume's UUID when a command first has it together with the
// volume's name, as the driver's selections do, one for each target.
func (r *replay) translate(argv []string) []string {
	var out, targets []string
	if i := slices.Index(argv, "--"); i >= 0 {
		targets = argv[i+1:]
	}
	group := r.node.Groups()[0]
	for _, arg := range argv {
		for i, m := range lvUUID.FindAllStringSubmatch(arg, -1) {
			if _, known := r.uuids[m[1]]; known || i >= len(targets) {
				continue
			}
			_, name, _ := strings.Cut(targets[i], "/")
			if j := slices.IndexFunc(group.LVs, func(lv lvm.LV) bool { return lv.Name == name }); j >= 0 {
				r.uuids[m[1]] = group.LVs[j].UUID
			}
		}
		arg = seqno.ReplaceAllString(arg, fmt.Sprintf("vg_seqno=%d", group.Seqno)) // each counts its commits
		arg = lvUUID.ReplaceAllStringFunc(arg, func(s string) string {
			if uuid, known := r.uuids[s[len("lv_uuid="):]]; known {
				return "lv_uuid=" + uuid
			}
			return s
		})
		out = append(out, r.disks.Replace(arg))
	}
	return out
}

// TestRefusals_RealLVM: the fake refuses what LVM refuses, with the same exit status and without a change, and accepts what LVM
// accepts without doing anything.
func TestRefusals_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	dir := t.TempDir()
	reallvm.StartDriver(t, dir).Stop(t) // it writes the configuration
	devices := strings.Join(reallvm.Disks(), ",")
	run := func(argv []string) int {
		cmd := exec.CommandContext(context.Background(), "lvm", argv...)
		cmd.Env = append(os.Environ(), "LVM_SYSTEM_DIR="+filepath.Join(dir, "etc"))
		out, err := cmd.CombinedOutput()
		t.Logf("lvm %s: %s", strings.Join(argv, " "), out)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode()
	}
	const nobody = "AAAAAA-aaaa-AAAA-aaaa-AAAA-aaaa-AAAAAA"
	fake := newReplay()
	fake.uuids[nobody] = nobody
	create := func(name string, args ...string) []string {
		return append([]string{"lvcreate", "-An", "-y", "--devices", devices, "-ay", "-Wy", "-Zy", "--alloc", "normal", "-n", name}, args...)
	}
	on := func(command string, args ...string) []string {
		return append([]string{command, "-y", "--devices", devices}, args...)
	}
	const kept = reallvm.Group + "/kept"
	disk := reallvm.Disks()[0]
	for _, argv := range [][]string{
		create("kept", "-l", "4", "--addtag", "nodelvm.state=ready", "--", reallvm.Group, disk+":0-3"),
		on("lvchange", "-S", "lv_uuid="+nobody+" && lv_tags={nodelvm.state=ready}", "--addtag", "x", "--", kept),
		on("lvremove", "-S", "lv_uuid="+nobody+" && lv_tags={nodelvm.state=ready}", "--", kept),
		on("lvchange", "-ay", "--", kept),
	} {
		if want, got := run(argv), fake.run(argv); want != 0 || got != 0 {
			t.Fatalf("exit status %d of the real LVM, %d of the fake: %v", want, got, argv)
		}
	}
	group, faked := b.ReadGroup(t), fake.node.Groups()[0]
	for _, argv := range [][]string{
		{"lvmake"},
		on("lvcreate"),
		create("kept", "-l", "1", "--", reallvm.Group),
		create("new", "-l", "0", "--", reallvm.Group),
		create("new", "-l", "many", "--", reallvm.Group),
		create("new", "--", reallvm.Group),
		create("new", "-l", "100000", "--", reallvm.Group),
		create("new", "-l", "1", "--", "no-such-group"),
		create("new", "-l", "1", "--", reallvm.Group, disk+":0-3"),
		create("new", "-l", "5", "--", reallvm.Group, disk+":4-7"),
		create("new", "-l", "1", "--", reallvm.Group, disk+":9-8"),
		create("new", "-l", "1", "--", reallvm.Group, "/dev/none"),
		create("new", "-l", "1", "--", reallvm.Group, disk+":9999-10000"),
		create("a/b", "-l", "1", "--", reallvm.Group),
		create("new", "-l", "1", "--addtag", "a,b", "--", reallvm.Group),
		create("new", "-l", "1", "--addtag", "a b", "--", reallvm.Group),
		create("new", "-l", "1", "--colour", "red", "--", reallvm.Group),
		create("new", "-l", "2", "--type", "striped", "-i", "2", "-I", "64k", "--", reallvm.Group, disk),
		create("new", "-l", "2", "--type", "striped", "-i", "7", "-I", "64k", "--", reallvm.Group),
		create("new", "-l", "2", "--type", "striped", "-i", "2", "-I", "5k", "--", reallvm.Group),
		create("new", "-l", "1", "--type", "raid1", "-m", "1", "--", reallvm.Group, disk),
		create("new", "-l", "1", "--type", "raid1", "-m", "6", "--", reallvm.Group),
		create("new", "-l", "2", "--type", "raid5", "-i", "1", "--", reallvm.Group),
		create("new", "-l", "2", "--type", "raid6", "-i", "2", "--", reallvm.Group),
		create("new", "-l", "1", "--type", "raid7", "--", reallvm.Group),
		{"lvcreate", "-y", "--devices", devices, "--type", "thin", "-V", "4m", "--thinpool", "no-such-pool", "-n", "new", "--", reallvm.Group},
		{"lvcreate", "-y", "--devices", devices, "-s", "-n", "new", "--", reallvm.Group + "/no-such-volume"},
		on("lvextend", "--alloc", "normal", "-l", "4", "--", kept),
		on("lvextend", "--alloc", "normal", "-l", "100000", "--", kept),
		on("lvextend", "--alloc", "normal", "-l", "5", "--", kept, disk+":0-3"),
		on("lvextend", "--alloc", "normal", "-l", "5", "--", reallvm.Group+"/no-such-volume"),
		on("lvextend", "--alloc", "normal", "-l", "5"),
		on("lvchange", "--addtag", "x", "--", reallvm.Group+"/no-such-volume"),
		on("lvchange", "--addtag", "a,b", "--", kept),
		on("lvchange", "-ay", "--", "no-such-group/kept"),
		on("lvremove", "--", reallvm.Group+"/no-such-volume"),
		on("lvremove"),
		on("lvremove", "--colour", "red", "--", kept),
	} {
		what := strings.Join(argv, " ")
		want, got := run(argv), fake.run(argv)
		if want != got || want == 0 {
			t.Errorf("exit status %d of the real LVM, %d of the fake: lvm %s", want, got, what)
		}
		if now := b.ReadGroup(t); !reflect.DeepEqual(now, group) {
			t.Errorf("the real group changed from %+v to %+v: lvm %s", group, now, what)
			group = now
		}
		if now := fake.node.Groups()[0]; !reflect.DeepEqual(now, faked) {
			t.Errorf("the fake group changed from %+v to %+v: lvm %s", faked, now, what)
			faked = now
		}
	}
	b.Admin(t, "lvremove", "-y", kept)
}
