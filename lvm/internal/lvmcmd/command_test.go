package lvmcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

func TestArgs(t *testing.T) {
	g := fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 4}, {Start: 8, Count: 100}}, []lvm.Run{{Start: 0, Count: 9}})
	c := &alloc.Allocation{Group: g, Extents: 6, Ranges: []alloc.ExtentRange{{Device: "/dev/vg-dataa", First: 8, Last: 11}, {Device: "/dev/vg-datab", First: 0, Last: 0}, {Device: "/dev/vg-dataa", First: 0, Last: 0}},
		Volume: lvm.Volume{ID: lvm.ID{VG: g.UUID, LV: "v-1"}, Name: "a b", Cluster: fixture.TestCluster, Class: lvm.Class{Layout: lvm.LayoutLinear, Wipe: lvm.WipeNone}, State: lvm.StateCreating}}
	target, err := TargetOf("vg-data", "v-1")
	fixture.Must(t, err)
	on := "-y --devices /dev/vg-dataa,/dev/vg-datab "
	for want, got := range map[string][]string{
		"lvcreate -An " + on + "-ay -Wy -Zy --alloc normal -l 6 -n v-1 --addtag nodelvm.v=1 --addtag nodelvm.state=creating" +
			" --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=a#20b --addtag nodelvm.lv=v-1 --addtag nodelvm.wipe=none" +
			" --addtag nodelvm.formatmark=25030656 -- vg-data /dev/vg-dataa:8-11:0-0 /dev/vg-datab:0-0": createArgs(target, c),
		"lvchange " + on + "-S vg_missing_pv_count=0 && lv_uuid=U && lv_tags={nodelvm.state=creating} --deltag nodelvm.state=creating --addtag nodelvm.state=ready -- vg-data/v-1": StateArgs(target, g, "U", lvm.StateCreating, lvm.StateReady),
		"lvchange " + on + "-ay -K -- vg-data/v-1":                                                                        ActivateArgs(g, target),
		"lvchange " + on + "--refresh -- vg-data/v-1":                                                                     RefreshArgs(target, g),
		"lvchange " + on + "-an -- vg-data/v-1 vg-data/v-1":                                                               DeactivateArgs(g, target, target),
		"lvremove " + on + "-S vg_missing_pv_count=0 && lv_uuid=U && lv_tags={nodelvm.state=deleting} -- vg-data/v-1":     RemoveArgs(target, g, "U", lvm.StateDeleting),
		"lvremove " + on + "-ff -S vg_missing_pv_count=0 && lv_uuid=U && lv_tags={nodelvm.state=creating} -- vg-data/v-1": DiscardArgs(target, g, "U"),
	} {
		if got := strings.Join(got, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestReadyArgs: one command marks many volumes, names each by its UUID and no other; a long list is split into several
// commands.
func TestReadyArgs(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 9}})
	var volumes []lvm.Volume
	for i := range readyBatchMax + 2 {
		volumes = append(volumes, lvm.Volume{ID: lvm.ID{VG: g.UUID, LV: fmt.Sprint("v-", i)}, UUID: fmt.Sprint("U", i)})
	}
	steps, err := ReadyArgs(g, volumes)
	fixture.Must(t, err)
	if len(steps) != 2 || len(strings.Join(steps[0].Argv, " ")) > 16<<10 {
		t.Fatalf("%d commands for %d volumes", len(steps), len(volumes))
	}
	first, second := strings.Join(steps[0].Argv, " "), strings.Join(steps[1].Argv, " ")
	if strings.Count(first, "lv_uuid=U") != readyBatchMax || strings.Count(first, " vg/v-") != readyBatchMax {
		t.Error(first)
	}
	want := "lvchange -y --devices /dev/vga -S vg_missing_pv_count=0 && lv_tags={nodelvm.state=creating} && (lv_uuid=U100 || lv_uuid=U101)" +
		" --deltag nodelvm.state=creating --addtag nodelvm.state=ready -- vg/v-100 vg/v-101"
	if second != want {
		t.Errorf("got  %s\nwant %s", second, want)
	}
	if _, err := ReadyArgs(g, []lvm.Volume{{ID: lvm.ID{LV: ""}}}); err == nil {
		t.Error("a volume without a name would name the whole group")
	}
	if steps, err := ReadyArgs(g, nil); err != nil || steps != nil {
		t.Errorf("nothing to mark: %v, %v", steps, err)
	}
}

// TestTargetOf: a name that LVM could match with more than one volume is no target.
// TestIsLockTaken: only LVM's message that another program has the group's lock counts.
func TestIsLockTaken(t *testing.T) {
	for words, want := range map[string]bool{
		"/run/lock/lvm/V_vg: flock failed: Resource temporarily unavailable Can't get lock for vg. Cannot process volume group vg": true,
		"Insufficient free space: 5 extents needed, but only 4 available":                                                          false,
	} {
		err := fmt.Errorf("lvextend: %w", &lvm.ExitError{Code: 5, Stderr: words})
		if IsLockTaken(err) != want {
			t.Errorf("%q: %v", words, !want)
		}
	}
	if IsLockTaken(nil) || IsLockTaken(errors.New("Can't get lock for vg")) {
		t.Error("another error counts")
	}
}

func TestTargetOf(t *testing.T) {
	for _, bad := range [][2]string{{"", ""}, {"vg", ""}, {"", "lv"}, {"@tag", "lv"}, {"vg", "@tag"}, {"-y", "lv"}, {"vg", "-y"}, {"vg/lv", "lv"}, {"vg", "a b"}} {
		if target, err := TargetOf(lvm.VGName(bad[0]), bad[1]); err == nil {
			t.Errorf("%q became the target %s", bad, target)
		}
	}
}

func TestLVName(t *testing.T) {
	usual := "pvc-0f3b3c56-1c2d-4e5f-8a9b-000000000001"
	if got := lvm.LVName(usual); got != usual {
		t.Errorf("the usual name became %s", got)
	}
	seen := map[string]string{}
	for _, name := range []string{"a", "A", "snapshot", "v-x", "pvc-", usual + "0", strings.ToUpper(usual), "--", "@x", "a/b", strings.Repeat("n", 128)} {
		got := lvm.LVName(name)
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q are both %s", name, other, got)
		}
		seen[got] = name
		if !lvm.NamePattern.MatchString(got) || len(got) > 40 || !strings.HasPrefix(got, "v-") {
			t.Errorf("%q became %q", name, got)
		}
	}
}

// TestConfig: each block driver is named once, removable ones are not, and paths are quoted.
func TestConfig(t *testing.T) {
	types := blockTypes("Character devices:\n  1 mem\n254 ubd0\n\nBlock devices:\n  2 fd\n  8 sd\n 11 sr\n 65 sd\n 98 ubd\n254 device-mapper\n259 blkext\n")
	if want := []string{"sd", "ubd", "blkext"}; !slices.Equal(types, want) {
		t.Errorf("block drivers %v, want %v", types, want)
	}
	conf := lvmConf(lvm.Config{SystemDir: "/etc/ours", LockDir: `/run/"lock`, BackupDir: "/backup"}, types)
	for _, want := range []string{`types = [ "sd", 16, "ubd", 16, "blkext", 16 ]`, `locking_dir = "/run/\"lock"`, `backup_dir = "/backup"`, "use_aio = 0", "udev_sync = 0", `dir = "/etc/ours/dev"`, `scan = [ "/dev" ]`, "--clear-needs-check-flag"} {
		if !strings.Contains(conf, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, conf)
		}
	}
	if conf := lvmConf(lvm.Config{}, nil); strings.Contains(conf, "ing_dir") || strings.Contains(conf, "backup_dir") || !strings.Contains(conf, "backup = 0") {
		t.Errorf("without folders the configuration is\n%s", conf)
	}
}

// TestRunError: the error of a failed command.
func TestRunError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runError(ctx, []string{"fullreport"}, -1, "", errors.New("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was given up: %v", err)
	}
	if err := runError(t.Context(), []string{"lvs"}, 0, "", nil); err != nil {
		t.Error(err)
	}
	partial := "Refusing activation of partial LV vg/v.  Use '--activationmode partial' to override."
	if err := runError(t.Context(), []string{"lvchange"}, 5, partial, exec.CommandContext(t.Context(), "false").Run()); strings.Contains(err.Error(), "activationmode") || !strings.Contains(err.Error(), "partial LV vg/v") {
		t.Errorf("what would put errors in the place of data is passed on: %v", err)
	}
	err := &lvm.ExitError{Argv: []string{"lvremove", "vg/a"}, Code: 5, Stderr: "  no\n  way\n"}
	if want := "no way (exit status 5 of: lvm lvremove vg/a)"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestRunner runs a script instead of lvm; the script prints its arguments and environment.
func TestRunner(t *testing.T) {
	t.Setenv("LVM_SUPPRESS_LOCKING_FAILURE_MESSAGES", "1") // an example of what must not be inherited
	t.Setenv("HOME", "/root")
	script := filepath.Join(t.TempDir(), "lvm")
	fixture.Must(t, os.WriteFile(script, []byte(`#!/bin/sh
case $1 in
fullreport) env | cut -d= -f1 | sort | tr '\n' ' ' >&3; echo chatter; read -r x || echo -n "no input" >&3 ;;
lvcreate) echo "$@"; echo "no room" >&2; exit 5 ;;
esac
`), 0o755))
	var seen []lvm.Command
	run := Command{Path: script, Reports: make(chan struct{}, 1), SystemDir: "/etc/ours", Observe: func(c lvm.Command) { seen = append(seen, c) }}
	report, err := run.Run(t.Context(), []string{"fullreport"})
	fixture.Must(t, err)
	if want := "GLIBC_TUNABLES LC_ALL LVM_REPORT_FD LVM_SUPPRESS_FD_WARNINGS LVM_SYSTEM_DIR PATH PWD no input"; string(report) != want {
		t.Errorf("the report is %q, want %q", report, want)
	}
	_, err = run.Run(t.Context(), []string{"lvcreate", "-n", "a; b"})
	var exit *lvm.ExitError
	if !errors.As(err, &exit) || exit.Code != 5 || exit.Stderr != "lvcreate -n a; b\nno room" {
		t.Errorf("a failed command: %v", err)
	}
	if len(seen) != 2 || seen[0].Name != "fullreport" || seen[0].ExitCode != 0 || seen[1].ExitCode != 5 || seen[1].Duration <= 0 {
		t.Errorf("observed %+v", seen)
	}
}

// TestRunnerAndDeadlines: a command that writes runs to its end. One that only reads is asked to end; if an unresponsive disk
// prevents that, its caller returns, and callers cannot start more and more of them.
func TestRunnerAndDeadlines(t *testing.T) {
	script := filepath.Join(t.TempDir(), "lvm")
	fixture.Must(t, os.WriteFile(script, []byte("#!/bin/sh\ntrap '' TERM\ncase $1 in fullreport) sleep 10 ;; *) sleep 0.5 ;; esac\n"), 0o755))
	run := Command{Path: script, Reports: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	for _, what := range []string{"hanging", "behind a hanging one"} {
		if _, err := run.Run(ctx, []string{"fullreport"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a command that reads, %s: %v", what, err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("its callers waited for %s", took)
	}
	began = time.Now()
	if _, err := run.Run(ctx, []string{"lvcreate"}); err != nil || time.Since(began) < 500*time.Millisecond {
		t.Errorf("a command that writes: %v after %s", err, time.Since(began))
	}
}

// TestHostNameOfCommandOnly: only what runs under another host name sees it.
func TestHostNameOfCommandOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a UTS namespace of its own needs root: run the tests as root")
	}
	before, err := os.Hostname()
	fixture.Must(t, err)
	for range 20 { // the process's first thread may be among those that run it
		var name []byte
		fixture.Must(t, withHostname(poolHost, func() (err error) {
			name, err = exec.CommandContext(t.Context(), "uname", "-n").Output()
			return err
		}))
		if strings.TrimSpace(string(name)) != poolHost {
			t.Fatalf("uname says %q", name)
		}
		if now, err := os.Hostname(); err != nil || now != before {
			t.Fatalf("the test's own host name became %q, %v", now, err)
		}
		first, err := os.Readlink("/proc/self/ns/uts")
		fixture.Must(t, err)
		if own, err := os.Readlink("/proc/thread-self/ns/uts"); err != nil || own != first {
			t.Fatalf("a thread is in another namespace: %s, %s, %v", first, own, err)
		}
	}
}

func TestMakesPool(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 9}})
	pool, err := TargetOf("vg", "thin-pool")
	fixture.Must(t, err)
	if !makesPool(poolArgs(pool, &alloc.PoolGrowth{Name: "thin-pool", Group: g, First: 1, Metadata: 1, Chunk: alloc.PoolChunk})) {
		t.Error("a pool's creation is not recognised")
	}
	for _, argv := range [][]string{extendArgs(pool, g, 5, nil), ReportArgs([]string{"/dev/sda"}), {"lvcreate", "--type"}} {
		if makesPool(argv) {
			t.Errorf("%q makes no pool", argv)
		}
	}
}

// TestPrepareArgs: no command answers yes to LVM, and names cannot become options.
func TestPrepareArgs(t *testing.T) {
	g := lvm.Group{Name: "vg", PVs: []lvm.PV{{Device: "/dev/sda"}, {}}}
	d := lvm.Declaration{Name: "vg", Tags: []string{"fast"}}
	device := ondisk.Disk{BlockDevice: ondisk.BlockDevice{Path: "/dev/sdb", Size: 3*lvm.GiB + 1}}
	for _, test := range []struct {
		want string
		argv []string
	}{
		{"pvcreate --devices /dev/sdb --norestorefile --uuid UUID --metadatasize 24576k -- /dev/sdb", PVCreateArgs(device, "UUID")},
		{"vgcreate --devices /dev/sdb,/dev/sdc --physicalextentsize 4096k --setautoactivation n --addtag fast --addtag nodelvm.node=node-1 -- vg /dev/sdb /dev/sdc", VGCreateArgs(d, "node-1", []string{"/dev/sdb", "/dev/sdc"})},
		{"vgcreate --devices /dev/sdb --physicalextentsize 4096k --setautoactivation n --addtag fast -- vg /dev/sdb", VGCreateArgs(d, "", []string{"/dev/sdb"})},
		{"vgextend --devices /dev/sda,/dev/sdb -- vg /dev/sdb", VGExtendArgs(g, []string{"/dev/sdb"})},
		{"vgchange --devices /dev/sda --addtag fast -- vg", VGTagArgs(g, nil, d.Tags)},
	} {
		if got := strings.Join(test.argv, " "); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
	if uuid := ondisk.NewPVUUID(); !ondisk.IsUUID(uuid) || !strings.HasPrefix(uuid, ondisk.PVUUIDPrefix) || uuid == ondisk.NewPVUUID() {
		t.Errorf("UUID %q", uuid)
	}
	for size, want := range map[lvm.Bytes]lvm.Bytes{16 * lvm.MiB: lvm.MiB, 4 * lvm.GiB: 32 * lvm.MiB, 100 * lvm.GiB: 64 * lvm.MiB} {
		if got := metadataSize(size); got != want {
			t.Errorf("metadata of a device of %s: %s", size, got)
		}
	}
	for size := 16 * lvm.MiB; size < 9*lvm.GiB; size += 500*lvm.KiB + lvm.SectorSize {
		if behind := (size - metadataSize(size) - lvm.MiB) % preparedExtent; behind < lvm.MiB {
			t.Errorf("a volume on a disk of %d bytes can reach its last %d", size, behind)
		}
	}
}
