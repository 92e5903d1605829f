//go:build innode

package innode

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// groupSnapshot takes a group snapshot, which the caller deletes.
func (c client) groupSnapshot(t *testing.T, name string, volumes ...*csi.Volume) *csi.VolumeGroupSnapshot {
	t.Helper()
	request := &csi.CreateVolumeGroupSnapshotRequest{Name: name}
	for _, v := range volumes {
		request.SourceVolumeIds = append(request.SourceVolumeIds, v.GetVolumeId())
	}
	reply, err := c.CreateVolumeGroupSnapshot(t.Context(), request)
	must(t, err)
	return reply.GetGroupSnapshot()
}

func (c client) deleteGroup(t *testing.T, id string) {
	t.Helper()
	_, err := c.DeleteVolumeGroupSnapshot(background, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id})
	must(t, err)
}

// inGroup makes a request for a thin volume of another volume group.
func inGroup(name string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters["volumeGroup"] = name }
}

func changed(r *csi.CreateVolumeRequest, change func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	change(r)
	return r
}

// ledger is a file or raw device with a counter.
type ledger struct {
	volume *csi.Volume
	path   string // of the file or device
}

// ledgers are the volumes of one kind, in the order in which a program commits to them.
type ledgers struct {
	client
	kind, name string
	secret     map[string]string
	of         []ledger

	commits atomic.Uint64 // the last counter that is on all of them
	longest atomic.Int64  // nanoseconds: the longest commit to one of them since it was read last
}

// groupCases are the kinds of volumes of TestGroupSnapshotsAreConsistent; "raw": without a file system.
var groupCases = map[string]int64{"raw": 64 * mebibyte, "ext4": 64 * mebibyte, "xfs": 320 * mebibyte, "btrfs": 256 * mebibyte}

// ledgerGroups are the volume groups of the ledgers.
var ledgerGroups = []string{"vg-a", "vg-b", "vg-a"}

// rounds is how many group snapshots each kind gets.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("NODELVM_TEST_GROUP_SNAPSHOTS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return (n + 2*len(groupCases) - 1) / (2 * len(groupCases))
}

// TestGroupSnapshotsAreConsistent: a program commits a counter to a volume, then to one in another volume group, and then to a third beside the
// first. No group snapshot has a later counter before an earlier one, or lacks what was committed before its request.
// NODELVM_TEST_GROUP_SNAPSHOTS is how many group snapshots the test takes of all kinds of volumes together. It takes those of raw volumes again
// without suspension, which shows that the check finds something.
func TestGroupSnapshotsAreConsistent(t *testing.T) {
	for kind := range groupCases {
		for _, secret := range []map[string]string{nil, newSecret(t)} {
			name := kind
			if secret != nil {
				name = "encrypted " + kind
			}
			t.Run(name, func(t *testing.T) { openLedgers(t, kind, name, secret).checkConsistent(t) })
		}
	}
}

func (l *ledgers) checkConsistent(t *testing.T) {
	stalls := stallSeconds(t)
	var waits []time.Duration
	ahead, controls := 0, 0
	for round := 0; round < rounds(t) || l.kind == "raw" && ahead == 0 && round < 50; round++ {
		var before uint64
		var made *csi.VolumeGroupSnapshot
		l.whileCommitting(t, func() {
			l.longest.Store(0)
			before = l.commits.Load()
			made = l.groupSnapshot(t, fmt.Sprintf("ledgers-%s-%d", l.name, round), l.of[0].volume, l.of[1].volume, l.of[2].volume)
		})
		waits = append(waits, time.Duration(l.longest.Load()))
		counters := l.countersIn(t, made)
		t.Logf("round %d: %v, of which %d were committed before", round, counters, before)
		if isAhead(counters) || counters[0] > counters[2]+1 || counters[2] < before {
			t.Errorf("the counters are %v, of which %d were committed before", counters, before)
		}
		if l.kind == "raw" {
			l.whileCommitting(t, func() { l.retakeUnsuspended(t, made) })
			controls++
			if counters := l.countersIn(t, made); isAhead(counters) {
				ahead++
			}
		}
		l.deleteGroup(t, made.GetGroupSnapshotId())
	}
	slices.Sort(waits)
	t.Logf("%d group snapshots; the longest commit of the program in each: median %s, at most %s; suspended for %s on average", len(waits),
		waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond), averageStall(t, stalls).Round(time.Millisecond))
	if l.kind != "raw" {
		return
	}
	t.Logf("without suspension a volume is ahead of an earlier one in %d of %d", ahead, controls)
	if ahead == 0 {
		t.Error("without suspension too, no volume is ahead of an earlier one: so this test shows nothing")
	}
}

// isAhead reports whether a volume has a later counter than one to which the program commits before.
func isAhead(counters []uint64) bool {
	return counters[0] < counters[1] || counters[1] < counters[2]
}

// stallSeconds returns how often, and for how many seconds together, the driver has suspended volumes for group snapshots.
func stallSeconds(t *testing.T) (sums [2]float64) {
	t.Helper()
	for line := range strings.Lines(metrics(t)) {
		for i, name := range []string{"nodelvm_group_snapshot_stall_seconds_count ", "nodelvm_group_snapshot_stall_seconds_sum "} {
			if value, is := strings.CutPrefix(line, name); is {
				var err error
				sums[i], err = strconv.ParseFloat(strings.TrimSpace(value), 64)
				must(t, err)
			}
		}
	}
	return sums
}

// averageStall returns how long a group snapshot suspended its volumes since the driver measured before.
func averageStall(t *testing.T, before [2]float64) time.Duration {
	t.Helper()
	now := stallSeconds(t)
	if now[0] == before[0] {
		t.Fatal("the driver measured no suspension")
	}
	return time.Duration((now[1] - before[1]) / (now[0] - before[0]) * float64(time.Second))
}

// retakeUnsuspended takes the snapshots of a group again, with the driver's messages to their thin pools, in the order in which the program commits.
// The volumes are not suspended.
func (l *ledgers) retakeUnsuspended(t *testing.T, made *csi.VolumeGroupSnapshot) {
	t.Helper()
	kernel := dm.Kernel{Sys: "/sys", Proc: "/proc", Dev: "/dev"}
	type take struct{ snapshot, origin [2]string }
	var takes []take
	for i, one := range l.of {
		takes = append(takes, take{thinDevice(t, l.snapshotIn(t, made, i)), thinDevice(t, one.volume.GetVolumeId())})
	}
	for _, one := range takes {
		must(t, kernel.MessagePool(one.snapshot[0], "delete "+one.snapshot[1]))
		must(t, kernel.MessagePool(one.snapshot[0], "create_snap "+one.snapshot[1]+" "+one.origin[1]))
	}
}

// snapshotIn returns the handle of the snapshot of a ledger.
func (l *ledgers) snapshotIn(t *testing.T, made *csi.VolumeGroupSnapshot, i int) string {
	t.Helper()
	at := slices.IndexFunc(made.GetSnapshots(), func(sn *csi.Snapshot) bool { return sn.GetSourceVolumeId() == l.of[i].volume.GetVolumeId() })
	if at < 0 {
		t.Fatalf("no snapshot of volume %d in %v", i, made)
	}
	return made.GetSnapshots()[at].GetSnapshotId()
}

// thinDevice returns the UUID of the device of a volume's thin pool, and its number there, as LVM shows them.
func thinDevice(t *testing.T, handle string) [2]string {
	t.Helper()
	fields := strings.Fields(output(t, realLVM, "lvs", "--noheadings", "-o", "vg_uuid,pool_lv_uuid,thin_id", "--select", "lv_name="+filepath.Base(handle)))
	if len(fields) != 3 {
		t.Fatalf("LVM shows %q of %s", fields, handle)
	}
	return [2]string{lvm.DeviceUUID(lvm.VGUUID(fields[0]), fields[1]) + "-tpool", fields[2]}
}

func (l *ledgers) capability() *csi.VolumeCapability {
	if l.kind == "raw" {
		return blockCapability()
	}
	return mountCapability(l.kind)
}

func (l *ledgers) request(name string, i int) *csi.CreateVolumeRequest {
	r := thinRequest(name, groupCases[l.kind], func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{l.capability()} })
	r.Parameters["volumeGroup"] = ledgerGroups[i]
	if l.secret != nil {
		encrypted(r)
	}
	return r
}

// open opens a volume as for a pod, and returns the path of its counter.
func (l *ledgers) open(t *testing.T, v *csi.Volume) string {
	t.Helper()
	target := l.opened(t, v, l.capability(), l.secret).target
	if l.kind == "raw" {
		return target
	}
	return filepath.Join(target, "counter")
}

func openLedgers(t *testing.T, kind, name string, secret map[string]string) *ledgers {
	t.Helper()
	l := &ledgers{client: connect(t), kind: kind, name: name, secret: secret}
	for i := range ledgerGroups {
		v := l.create(t, l.request(fmt.Sprintf("ledger-%s-%d", name, i), i))
		l.of = append(l.of, ledger{v, l.open(t, v)})
	}
	return l
}

// whileCommitting does something while a program commits a rising counter to each ledger in turn.
func (l *ledgers) whileCommitting(t *testing.T, do func()) {
	t.Helper()
	var files []*os.File
	for _, one := range l.of {
		f, err := os.OpenFile(one.path, os.O_CREATE|os.O_WRONLY|unix.O_DSYNC, 0o600)
		must(t, err)
		files = append(files, f)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	before := l.commits.Load()
	go func() { stopped <- l.commitUntil(stop, files) }()
	defer func() {
		close(stop)
		must(t, <-stopped)
		for _, f := range files {
			must(t, f.Close())
		}
	}()
	eventually(t, time.Minute, "the program commits", func() bool { return l.commits.Load() > before+1 })
	do()
}

func (l *ledgers) commitUntil(stop <-chan struct{}, files []*os.File) error {
	for n := l.commits.Load() + 1; ; n++ {
		for _, f := range files {
			began := time.Now()
			if _, err := f.WriteAt([]byte(fmt.Sprintf("%016d", n)), 0); err != nil {
				return err
			}
			if took := int64(time.Since(began)); took > l.longest.Load() {
				l.longest.Store(took)
			}
		}
		l.commits.Store(n)
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// countersIn reads the counters from volumes that are restored from a group snapshot, and deletes these.
func (l *ledgers) countersIn(t *testing.T, made *csi.VolumeGroupSnapshot) []uint64 {
	t.Helper()
	counters := make([]uint64, len(l.of))
	for i := range l.of {
		id := l.snapshotIn(t, made, i)
		ok := t.Run(fmt.Sprintf("restored %d", i), func(t *testing.T) {
			r := l.request("copy of "+id, i)
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
			f, err := os.Open(l.open(t, l.create(t, r)))
			must(t, err)
			defer func() { must(t, f.Close()) }()
			buffer := make([]byte, 16)
			_, err = io.ReadFull(f, buffer)
			must(t, err)
			counters[i], err = strconv.ParseUint(string(buffer), 10, 64)
			must(t, err)
		})
		if !ok {
			t.Fatalf("cannot read counter %d", i)
		}
	}
	return counters
}
