//go:build innode

package innode

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// TestGroupSnapshot: the calls of CSI, repeated and wrong ones.
func TestGroupSnapshot(t *testing.T) {
	c := connect(t)
	a, b := c.create(t, thinRequest("group-a", 64*mebibyte)), c.create(t, changed(thinRequest("group-b", 64*mebibyte), inGroup("vg-b")))
	thick := c.create(t, createRequest("group-thick", 8*mebibyte))
	made := c.groupSnapshot(t, "group", a, b)
	if len(made.GetSnapshots()) != 2 || !made.GetReadyToUse() {
		t.Fatalf("made %v", made)
	}
	if again := c.groupSnapshot(t, "group", b, a); again.GetGroupSnapshotId() != made.GetGroupSnapshotId() {
		t.Errorf("made again: %v", again)
	}
	member := made.GetSnapshots()[0].GetSnapshotId()
	found, err := c.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: made.GetGroupSnapshotId()})
	if err != nil || len(found.GetGroupSnapshot().GetSnapshots()) != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	one, err := c.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: member})
	if err != nil || one.GetSnapshot().GetGroupSnapshotId() != made.GetGroupSnapshotId() {
		t.Errorf("a member is %v, %v", one, err)
	}
	_, alone := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: member})
	_, others := c.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "group", SourceVolumeIds: []string{a.GetVolumeId()}})
	_, layout := c.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "thick", SourceVolumeIds: []string{a.GetVolumeId(), thick.GetVolumeId()}})
	_, mismatch := c.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: made.GetGroupSnapshotId(), SnapshotIds: []string{member}})
	for what, got := range map[string]struct {
		err  error
		code codes.Code
	}{
		"a member deleted alone": {alone, codes.InvalidArgument}, "other volumes": {others, codes.AlreadyExists},
		"a thick volume": {layout, codes.InvalidArgument}, "not its members": {mismatch, codes.InvalidArgument},
	} {
		if status.Code(got.err) != got.code {
			t.Errorf("%s: %v, want %s", what, got.err, got.code)
		}
	}
	for range 2 {
		c.deleteGroup(t, made.GetGroupSnapshotId())
	}
	for _, name := range lvNames(t) {
		if strings.HasPrefix(name, "s-") {
			t.Errorf("left: %s", name)
		}
	}
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

// groupCases are the kinds of volumes of TestGroupSnapshotsAreConsistent; "raw": without a file system.
var groupCases = map[string]int64{"raw": 64 * mebibyte, "ext4": 64 * mebibyte, "xfs": 320 * mebibyte, "btrfs": 256 * mebibyte}

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

// TestGroupSnapshotsAreConsistent: while a program commits a counter to a volume, then to one in another volume group, and then to a third
// beside the first, no group snapshot has a later counter before an earlier one. NODELVM_TEST_GROUP_SNAPSHOTS is how many group snapshots it takes of
// all kinds of volumes together.
func TestGroupSnapshotsAreConsistent(t *testing.T) {
	for kind, size := range groupCases {
		for _, secret := range []map[string]string{nil, newSecret(t)} {
			name := kind
			if secret != nil {
				name = "encrypted " + kind
			}
			t.Run(name, func(t *testing.T) {
				c := connect(t)
				capability := blockCapability()
				if kind != "raw" {
					capability = mountCapability(kind)
				}
				var ledgers []ledger
				for i, group := range []string{"vg-a", "vg-b", "vg-a"} {
					v := c.create(t, ledgerRequest(fmt.Sprintf("ledger-%s-%d", name, i), size, group, capability, secret))
					ledgers = append(ledgers, ledger{v, counterAt(c.opened(t, v, capability, secret).target, kind)})
				}
				commits, end := commitTo(t, ledgers)
				for round := range rounds(t) {
					before := commits.Load()
					eventually(t, time.Minute, "the program commits", func() bool { return commits.Load() > before })
					began := time.Now()
					made := c.groupSnapshot(t, fmt.Sprintf("ledgers-%s-%d", name, round), ledgers[0].volume, ledgers[1].volume, ledgers[2].volume)
					took := time.Since(began)
					counters := c.countersIn(t, made, ledgers, size, kind, capability, secret)
					t.Logf("round %d: %v, in %s", round, counters, took.Round(time.Millisecond))
					if counters[0] < counters[1] || counters[1] < counters[2] || counters[2]+1 < counters[0] || counters[0] == 0 {
						t.Errorf("the counters are %v", counters)
					}
					c.deleteGroup(t, made.GetGroupSnapshotId())
				}
				end()
			})
		}
	}
}

func ledgerRequest(name string, size int64, group string, capability *csi.VolumeCapability, secret map[string]string) *csi.CreateVolumeRequest {
	r := thinRequest(name, size, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{capability} })
	r.Parameters["volumeGroup"] = group
	if secret != nil {
		encrypted(r)
	}
	return r
}

// counterAt is where the counter of a volume is.
func counterAt(target, kind string) string {
	if kind == "raw" {
		return target
	}
	return filepath.Join(target, "counter")
}

// commitTo commits a rising counter to each ledger in turn, until end is called.
func commitTo(t *testing.T, ledgers []ledger) (commits *atomic.Uint64, end func()) {
	t.Helper()
	var files []*os.File
	for _, l := range ledgers {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|unix.O_DSYNC, 0o600)
		must(t, err)
		files = append(files, f)
	}
	commits = &atomic.Uint64{}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for n := uint64(1); ; n++ {
			for _, f := range files {
				if _, err := f.WriteAt([]byte(fmt.Sprintf("%016d", n)), 0); err != nil {
					stopped <- err
					return
				}
			}
			commits.Store(n)
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
		}
	}()
	return commits, func() {
		close(stop)
		must(t, <-stopped)
		for _, f := range files {
			must(t, f.Close())
		}
	}
}

// countersIn reads the counters from volumes that are restored from a group snapshot, and deletes these.
func (c client) countersIn(t *testing.T, made *csi.VolumeGroupSnapshot, ledgers []ledger, size int64, kind string, capability *csi.VolumeCapability, secret map[string]string) []uint64 {
	t.Helper()
	counters := make([]uint64, len(ledgers))
	for i, l := range ledgers {
		for _, sn := range made.GetSnapshots() {
			if sn.GetSourceVolumeId() != l.volume.GetVolumeId() {
				continue
			}
			ok := t.Run(fmt.Sprintf("restored %d", i), func(t *testing.T) {
				r := ledgerRequest(fmt.Sprintf("copy of %s", sn.GetSnapshotId()), size, [...]string{"vg-a", "vg-b", "vg-a"}[i], capability, secret)
				r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: sn.GetSnapshotId()}}}
				f, err := os.Open(counterAt(c.opened(t, c.create(t, r), capability, secret).target, kind))
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
	}
	return counters
}
