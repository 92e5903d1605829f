//go:build reallvm

package host

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// realDisks are loop devices and an lvm that uses only them. The tests create volumes in the metadata only, without
// device-mapper.
type realDisks struct {
	devices   []string
	systemDir string
}

func newRealDisks(t *testing.T, mebibytes ...int) *realDisks {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests create loop devices and volume groups with the real LVM: run them as root")
	}
	for _, tool := range []string{"lvm", "losetup"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("these tests need lvm2 and util-linux: %v", err)
		}
	}
	r := &realDisks{systemDir: t.TempDir()}
	for i, size := range mebibytes {
		file := filepath.Join(r.systemDir, fmt.Sprintf("disk%d", i))
		fixture.Must(t, os.WriteFile(file, nil, 0o600))
		fixture.Must(t, os.Truncate(file, int64(size)<<20))
		out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
		if err != nil {
			t.Fatalf("losetup: %v", err)
		}
		device := strings.TrimSpace(string(out))
		t.Cleanup(func() {
			fixture.Must(t, exec.CommandContext(context.Background(), "losetup", "--detach", device).Run())
		})
		r.devices = append(r.devices, device)
	}
	fixture.Must(t, lvmcmd.WriteConfig(lvm.Config{SystemDir: r.systemDir, LockDir: filepath.Join(r.systemDir, "lock")}))
	path := filepath.Join(r.systemDir, "lvm.conf")
	conf, err := os.ReadFile(path)
	fixture.Must(t, err)
	filter := "devices/global_filter = [ \"a|^" + strings.Join(r.devices, "$|\", \"a|^") + "$|\", \"r|.*|\" ]\n"
	fixture.Must(t, os.WriteFile(path, append(conf, filter...), 0o600))
	return r
}

// lvm runs the real command and returns its failure.
func (r *realDisks) lvm(argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "lvm", argv...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", "LVM_SYSTEM_DIR=" + r.systemDir}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("lvm %s: %w: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return out, err
}

func (r *realDisks) change(t *testing.T, argv ...string) {
	t.Helper()
	_, err := r.lvm(slices.Insert(argv, 1, "--driverloaded", "n", "-y")...)
	fixture.Must(t, err)
}

// compare reads the named groups in both ways, and fails if the results differ.
func (r *realDisks) compare(t *testing.T, after string, groups ...string) lvm.State {
	t.Helper()
	others := func(g lvm.Group) bool { return !slices.Contains(groups, string(g.Name)) }
	direct, err := new(ondisk.Disks).Read(context.Background())
	fixture.Must(t, err)
	direct.Groups = slices.DeleteFunc(direct.Groups, others)
	out, err := r.lvm(lvmcmd.ReportArgs(direct.Devices)...)
	fixture.Must(t, err)
	direct.UnreadDevices, direct.Skipped, direct.Devices, direct.Unlabeled = nil, nil, nil, nil // the direct read includes the machine's disks
	for i := range direct.Groups {
		direct.Groups[i].Checksum = 0 // the report lacks this, and block sizes
		for j := range direct.Groups[i].PVs {
			direct.Groups[i].PVs[j].BlockSize = 0
		}
	}
	report, err := ondisk.ParseReport(bytes.NewReader(out))
	fixture.Must(t, err)
	if diff := cmp.Diff(report, direct); diff != "" {
		t.Fatalf("after %s, LVM's report (-) and the disks (+) differ:\n%s", after, diff)
	}
	return direct
}

// Both readers agree on many random groups, after every single change.
func TestRealReadersAgree(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRealDisks(t, 40, 64, 100, 23)
	for round := range 6 {
		name := fmt.Sprintf("nodelvm-read-%d", round)
		disks := slices.Clone(r.devices)
		random.Shuffle(len(disks), func(i, j int) { disks[i], disks[j] = disks[j], disks[i] })
		disks = disks[:1+random.IntN(len(disks))]
		extent := []string{"1m", "4m", "512k"}[random.IntN(3)]
		r.change(t, append([]string{"vgcreate", "--setautoactivation", "n", "-s", extent, name}, disks...)...)
		var names []string
		for step := range 25 {
			argv := randomChange(random, name, disks, &names, step)
			if _, err := r.lvm(slices.Insert(slices.Clone(argv), 1, "--driverloaded", "n", "-y")...); err != nil {
				if argv[0] != "lvcreate" && argv[0] != "lvextend" {
					t.Fatal(err) // only insufficient free space is allowed
				}
				names = slices.DeleteFunc(names, func(n string) bool { return argv[0] == "lvcreate" && n == fmt.Sprintf("v%d", step) })
			}
			r.compare(t, strings.Join(argv, " "), name)
		}
		r.change(t, "vgremove", "-ff", name)
	}
}

func randomChange(random *rand.Rand, group string, disks []string, names *[]string, step int) []string {
	pick := func() string { return group + "/" + (*names)[random.IntN(len(*names))] }
	kind := random.IntN(10)
	switch {
	case kind < 4 || len(*names) == 0:
		name := fmt.Sprintf("v%d", step)
		*names = append(*names, name)
		argv := []string{"lvcreate", "-an", "-Zn", "-Wn", "-l", fmt.Sprint(1 + random.IntN(9)), "-n", name, "--addtag", "x=#20!&"}
		if random.IntN(3) == 0 && len(disks) > 1 {
			return append(argv, "--type", "striped", "-i", "2", group)
		}
		return append(append(argv, group), disks[random.IntN(len(disks)):]...)
	case kind < 6:
		i := random.IntN(len(*names))
		victim := group + "/" + (*names)[i]
		*names = slices.Delete(*names, i, i+1)
		return []string{"lvremove", victim}
	case kind == 6:
		return []string{"lvextend", "-l", fmt.Sprintf("+%d", 1+random.IntN(5)), pick()}
	case kind == 7:
		return []string{"lvchange", "--addtag", fmt.Sprintf("t%d", step), pick()}
	case kind == 8:
		return []string{"vgchange", "--addtag", fmt.Sprintf("t%d", step), group}
	default:
		return []string{"pvchange", "-x", []string{"y", "n"}[random.IntN(2)], disks[random.IntN(len(disks))]}
	}
}

// A group is read while another process commits to it without a pause: each read returns one of the group's states.
func TestRealReadDuringCommits(t *testing.T) {
	const name = "nodelvm-busy"
	r := newRealDisks(t, 64, 64)
	r.change(t, append([]string{"vgcreate", "--setautoactivation", "n", name}, r.devices...)...)
	done := make(chan error, 1)
	go func() {
		for i := range 60 {
			if _, err := r.lvm("lvcreate", "--driverloaded", "n", "-y", "-an", "-Zn", "-Wn", "-l1", "-n", fmt.Sprintf("v%d", i%20), name); err != nil {
				done <- err
				return
			}
			if i%20 == 19 {
				if _, err := r.lvm("lvremove", "--driverloaded", "n", "-y", name); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	disks, readings, seqno := new(ondisk.Disks), 0, int64(0)
	for {
		select {
		case err := <-done:
			fixture.Must(t, err)
			if readings < 100 {
				t.Errorf("only %d reads", readings)
			}
			t.Logf("%d reads, the last of seqno %d", readings, seqno)
			r.change(t, "vgremove", "-ff", name)
			return
		default:
		}
		state, err := disks.Read(context.Background())
		fixture.Must(t, err)
		i := slices.IndexFunc(state.Groups, func(g lvm.Group) bool { return g.Name == name })
		if i < 0 {
			t.Fatalf("the group is missing; unread: %v", state.UnreadDevices)
		}
		if state.Groups[i].Seqno < seqno {
			t.Fatalf("seqno %d after %d", state.Groups[i].Seqno, seqno)
		}
		seqno = state.Groups[i].Seqno
		readings++
	}
}

// A path under /dev that leads to another device than sysfs says is not read.
func TestRealWrongNode(t *testing.T) {
	r := newRealDisks(t, 64)
	f, err := ondisk.OpenDirect(r.devices[0], true)
	fixture.Must(t, err)
	defer func() { _ = unix.Close(f.Fd) }()
	if err := f.IsDevice(unix.Mkdev(250, 77)); err == nil || !strings.Contains(err.Error(), "250:77") {
		t.Errorf("error %v", err)
	}
}

// BenchmarkRealRead reads this machine's disks.
func BenchmarkRealRead(b *testing.B) {
	disks := new(ondisk.Disks)
	for b.Loop() {
		_, err := disks.Read(b.Context())
		fixture.Must(b, err)
	}
}
