package ondisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// recordOf is the record of a node whose kubelet has these other plugins.
func recordOf(t *testing.T, others ...string) *accepted.Record {
	t.Helper()
	dir := t.TempDir()
	r := &accepted.Record{File: filepath.Join(dir, "accepted.json"), KubeletDir: filepath.Join(dir, "kubelet"), Driver: "nodelvm.io", Log: slog.New(slog.DiscardHandler)}
	fixture.Must(t, os.MkdirAll(filepath.Join(r.KubeletDir, "pods"), 0o700))
	for _, plugin := range append(others, "nodelvm.io") {
		fixture.Must(t, os.MkdirAll(filepath.Join(r.KubeletDir, "plugins", plugin), 0o700))
	}
	return r
}

// mounts writes the node's table of mounts.
func (s *stack) mounts(lines ...string) {
	s.T.Helper()
	fixture.Must(s.T, os.MkdirAll(filepath.Join(s.Proc, "self"), 0o755))
	fixture.Must(s.T, os.WriteFile(filepath.Join(s.Proc, "self/mountinfo"), []byte("28 21 0:24 / /run rw - tmpfs run rw\n"+strings.Join(lines, "")), 0o600))
}

// attachForeign attaches a disk of another storage driver, with a partition.
func (s *stack) attachForeign() {
	s.T.Helper()
	s.Make("devices/pci0000:00/0000:00:1f.0/nvme/nvme2/nvme2n1", 259)
	s.Attribute(s.T, "nvme2n1", "device/model", "Amazon Elastic Block Store\n")
	s.Attribute(s.T, "nvme2n1", "wwid", "nvme.1d0f-766f6c3031\n")
	s.Make("devices/pci0000:00/0000:00:1f.0/nvme/nvme2/nvme2n1/nvme2n1p1", 259)
	s.Attribute(s.T, "nvme2n1p1", "partition", "1\n")
}

// readOf reads the node's groups with a record.
func (s *stack) readOf(r *accepted.Record) lvm.State {
	s.T.Helper()
	d := s.reader()
	d.Accepted = r
	state, err := d.Read(s.T.Context())
	fixture.Must(s.T, err)
	return state
}

// TestRawVolumeOfAnotherDriver: a user of another driver's raw block volume writes a group to it, or to a partition that the kernel finds
// there. The driver believes none of it, even if it runs on the node for the first time.
func TestRawVolumeOfAnotherDriver(t *testing.T) {
	for _, where := range []string{"nvme2n1", "nvme2n1p1"} {
		for how, hold := range map[string]func(*stack, *accepted.Record){
			"the kubelet's loop device": func(s *stack, _ *accepted.Record) {
				s.loop("loop3", loopStatus{device: s.Number("nvme2n1"), fileSystem: 5})
			},
			"a mount": func(s *stack, r *accepted.Record) {
				major := s.Number("nvme2n1")
				s.mounts(fmt.Sprintf("40 1 %s / %s/pods/u/volumes/x rw - ext4 /dev/nvme2n1 rw\n", dm.FormatNumber(major), r.KubeletDir))
			},
		} {
			t.Run(where+", "+how, func(t *testing.T) {
				s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
				s.mounts()
				s.attachForeign()
				hold(s, r)
				s.forge(where)
				if where == "nvme2n1" && s.loops["loop3"].device != 0 {
					s.forge("loop3") // the same bytes
				}
				state := s.readOf(r)
				if len(state.Groups) > 0 || len(state.Devices) > 0 || state.CheckComplete() != nil {
					t.Errorf("the driver believes %+v, LVM may open %q, complete: %v", state.Groups, state.Devices, state.CheckComplete())
				}
				if len(state.Unaccepted) > 0 || len(r.Entries()) > 0 {
					t.Errorf("reported %+v, recorded %+v", state.Unaccepted, r.Entries())
				}
			})
		}
	}
}

// TestRawVolumeTakesNoGroupOver: the node's group is on sda1. A raw volume of another driver says that the group, with a higher seqno, is on
// it alone, or has the UUID of the group's PV. The driver keeps reading sda1.
func TestRawVolumeTakesNoGroupOver(t *testing.T) {
	const forgedPV = "ffffff-ffff-ffff-ffff-ffff-ffff-ffffff"
	for name, c := range map[string]struct {
		pv       string // "": the real one
		mapped   bool
		reported string
	}{
		"before the pod starts": {forgedPV, false, "another storage driver on this node (ebs.csi.aws.com)"},
		"of a pod":              {forgedPV, true, ""},
		"a copy of the PV":      {"", false, "the node's record has its physical volume on another device, last "},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
			s.mounts()
			s.forge("sda1")
			before := s.readOf(r)
			if len(before.Groups) != 1 {
				t.Fatalf("the first use found %+v", before)
			}
			g := before.Groups[0]
			if c.pv == "" {
				c.pv = g.PVs[0].UUID
			}
			s.attachForeign()
			s.write("nvme2n1p1", forgePV(c.pv, textOf(g, c.pv), 64<<20))
			if c.mapped {
				s.loop("loop3", loopStatus{device: s.Number("nvme2n1"), fileSystem: 5})
			}
			state := s.readOf(r)
			if !reflect.DeepEqual(state.Groups, before.Groups) || len(state.UnreadDevices) > 0 {
				t.Errorf("the group is %+v, unread %q", state.Groups, state.UnreadDevices)
			}
			if slices.Contains(state.Devices, filepath.Join(s.Dev, "nvme2n1p1")) {
				t.Errorf("LVM may open %q", state.Devices)
			}
			if slices.ContainsFunc(state.Unaccepted, func(u lvm.UnacceptedPV) bool { return u.Recorded }) {
				t.Errorf("the node's own disk is there: %+v", state.Unaccepted)
			}
			if told := fmt.Sprint(state.Unaccepted); strings.Contains(told, "nvme2n1p1") != (c.reported != "") || !strings.Contains(told, c.reported) {
				t.Errorf("reported %s", told)
			}
		})
	}
}

// TestGroupOnNewHardware: beside another storage driver, the disk of the node's only group is there with other hardware. The driver ignores the
// group, and does not take it for absent.
func TestGroupOnNewHardware(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.forge("sda1")
	g := s.readOf(r).Groups[0]
	s.attachForeign()
	s.write("nvme2n1p1", forgePV(g.PVs[0].UUID, textOf(g, g.PVs[0].UUID), 64<<20))
	s.write("sda1", make([]byte, 64<<20))
	state := s.readOf(r)
	if len(state.Groups) > 0 || len(state.Unaccepted) != 1 || !state.Unaccepted[0].Recorded {
		t.Fatalf("groups %+v, ignored %+v", state.Groups, state.Unaccepted)
	}
	want := filepath.Join(s.Dev, "nvme2n1p1") + " has the physical volume " + g.PVs[0].UUID + " of this node and is not accepted: the node's record has its physical volume on another device"
	if lack := state.MayLack(); len(lack) != 1 || !strings.HasPrefix(lack[0], want) {
		t.Errorf("it says %q, want %q", lack, want)
	}
}

// TestNewGroupNeedsRecord: after the first use, a group on a new disk counts if the node has no other storage driver, or if an admin accepts
// it; and it stays accepted when another driver comes.
func TestNewGroupNeedsRecord(t *testing.T) {
	for _, others := range [][]string{nil, {"ebs.csi.aws.com"}} {
		s, r := newStack(t), recordOf(t, others...)
		s.mounts()
		s.readOf(r)
		s.forge("sda1")
		state := s.readOf(r)
		if len(state.Groups) != 1-len(others) || len(state.Unaccepted) != len(others) {
			t.Errorf("beside %q: groups %+v, reported %+v", others, state.Groups, state.Unaccepted)
		}
		d := s.reader()
		d.Accepted = r
		if _, err := d.AcceptDevice(t.Context(), filepath.Join(s.Dev, "sda1"), accepted.Command); err != nil {
			t.Errorf("beside %q: accepting it: %v", others, err)
		}
		fixture.Must(t, os.MkdirAll(filepath.Join(r.KubeletDir, "plugins/other"), 0o700))
		again := &accepted.Record{File: r.File, KubeletDir: r.KubeletDir, Driver: r.Driver, Log: r.Log} // the next process
		if state = s.readOf(again); len(state.Groups) != 1 || len(state.Unaccepted) > 0 || len(state.Devices) != 1 {
			t.Errorf("beside %q: after the admin's command %+v", others, state)
		}
	}
}

// TestAcceptRefuses: an admin cannot accept a volume of a pod by mistake, nor what is no physical volume of the node.
func TestAcceptRefuses(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.attachForeign()
	s.loop("loop3", loopStatus{device: s.Number("nvme2n1"), fileSystem: 5})
	s.forge("nvme2n1p1")
	s.forge("dm-0")
	s.Virtual("md0", 9, "sda")
	fixture.Must(t, os.WriteFile(filepath.Join(s.Sys, "class/block/sda/holders/md0"), nil, 0o600))
	s.forge("sda")
	d := s.reader()
	d.Accepted = r
	for device, words := range map[string]string{"nvme2n1p1": "loop device loop3 is attached to it", "dm-0": "no block device that can have", "sda": "is a part of another device", "md0": "is no physical volume", "absent": "cannot find"} {
		if _, err := d.AcceptDevice(t.Context(), filepath.Join(s.Dev, device), accepted.Command); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", device, err)
		}
	}
	if len(r.Entries()) > 0 {
		t.Errorf("recorded %+v", r.Entries())
	}
}

// TestAcceptRefusesACopy: a user of another driver's volume copies the node's disk to it, and an admin enters the command that doctor prints. The copy would take
// the group over. It is accepted when the disk is gone, which it then replaces.
func TestAcceptRefusesACopy(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.forge("sda1")
	s.readOf(r)
	s.attachForeign()
	s.forge("nvme2n1p1")
	original, copied := filepath.Join(s.Dev, "sda1"), filepath.Join(s.Dev, "nvme2n1p1")
	d := s.reader()
	d.Accepted = r
	if _, err := d.AcceptDevice(t.Context(), copied, accepted.Command); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "is also on "+original) {
		t.Errorf("accepting the copy: %v", err)
	}
	if state := s.readOf(r); !slices.Equal(state.Devices, []string{original}) || len(r.Entries()) != 1 {
		t.Errorf("the driver uses %q, recorded %+v", state.Devices, r.Entries())
	}
	if _, err := d.AcceptDevice(t.Context(), original, accepted.Command); err != nil {
		t.Errorf("accepting the disk again: %v", err)
	}
	s.write("sda1", make([]byte, 4096))
	if _, err := d.AcceptDevice(t.Context(), copied, accepted.Command); err != nil {
		t.Errorf("accepting the copy alone: %v", err)
	}
	if state := s.readOf(r); !slices.Equal(state.Devices, []string{copied}) {
		t.Errorf("the driver uses %q", state.Devices)
	}
}

// TestDiskOfAcceptedGroupIsAccepted: vgextend lists a new disk in the metadata of the others.
func TestDiskOfAcceptedGroupIsAccepted(t *testing.T) {
	n, r := fixture.NewTestNode(t), recordOf(t, "ebs.csi.aws.com")
	fixture.Must(t, os.MkdirAll(filepath.Join(n.Proc, "self"), 0o755))
	fixture.Must(t, os.WriteFile(filepath.Join(n.Proc, "self/mountinfo"), nil, 0o600))
	n.Plug(t, "testdata/groups/striped")
	for _, name := range []string{"loop0", "loop1", "loop2"} {
		n.Attribute(t, name, "wwid", "naa."+name+"\n")
	}
	second, err := os.ReadFile(filepath.Join(n.Dev, "loop1"))
	fixture.Must(t, err)
	fixture.Must(t, os.WriteFile(filepath.Join(n.Dev, "loop1"), make([]byte, len(second)), 0o600)) // blank until vgextend
	read := func() lvm.State {
		d := disksOf(n)
		d.Accepted = r
		state, err := d.Read(t.Context())
		fixture.Must(t, err)
		return state
	}
	if g := read().Groups[0]; g.IncompleteReason() == "" {
		t.Fatalf("a PV of the group is missing: %+v", g)
	}
	fixture.Must(t, os.WriteFile(filepath.Join(n.Dev, "loop1"), second, 0o600))
	if state := read(); lvm.CheckWritable(state, state.Groups[0]) != nil || len(state.Devices) != 3 || len(r.Entries()) != 3 {
		t.Errorf("%+v, recorded %+v", state, r.Entries())
	}
	n.Attribute(t, "loop1", "wwid", "naa.other\n") // another disk with its content
	if state := read(); state.Groups[0].IncompleteReason() == "" || len(state.Unaccepted) != 1 {
		t.Errorf("%+v", state)
	}
}

// TestUnreadableForeignDisk: a disk that cannot be read makes the reading incomplete only if it is the node's.
func TestUnreadableForeignDisk(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	damaged := func(name string) {
		s.write(name, append(make([]byte, 512), "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00"...))
	}
	damaged("sda1")
	if state := s.readOf(r); len(state.UnreadDevices) != 1 || len(r.Entries()) != 1 || r.Entries()[0].PV != "" {
		t.Fatalf("at the first use: %q, recorded %+v", state.UnreadDevices, r.Entries())
	}
	s.attachForeign()
	damaged("nvme2n1p1")
	if state := s.readOf(r); len(state.UnreadDevices) != 1 || !strings.Contains(state.UnreadDevices[0], "sda1") {
		t.Errorf("unread: %q", state.UnreadDevices)
	}
	s.forge("sda1")
	if state := s.readOf(r); len(state.Groups) != 1 || len(r.Entries()) != 1 || r.Entries()[0].PV == "" {
		t.Errorf("readable again: %+v, recorded %+v", state.Groups, r.Entries())
	}
}

// TestUnreadableVolumeOfAPod: a user of another driver's raw block volume damages the label on it before the driver first runs on the node, and repairs it
// when no pod uses the volume. The record does not await it, and no reading is incomplete because of it.
func TestUnreadableVolumeOfAPod(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.attachForeign()
	s.loop("loop3", loopStatus{device: s.Number("nvme2n1"), fileSystem: 5})
	s.write("nvme2n1p1", append(make([]byte, 512), "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00"...))
	if state := s.readOf(r); len(r.Entries()) > 0 || len(state.UnreadDevices) > 0 {
		t.Errorf("at the first use: unread %q, recorded %+v", state.UnreadDevices, r.Entries())
	}
	s.attach("loop3", loopStatus{})
	s.forge("nvme2n1p1")
	if state := s.readOf(r); len(state.Groups) > 0 || len(state.Unaccepted) != 1 {
		t.Errorf("attached again, before its pod starts: the driver believes %+v, reported %+v", state.Groups, state.Unaccepted)
	}
}

// TestLoopDeviceThatCannotBeAsked: while the driver cannot determine which disks are volumes of pods, it accepts none, says why, and does not take
// this for its first use. Later it ignores only new disks.
func TestLoopDeviceThatCannotBeAsked(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.forge("sda1")
	s.attachForeign()
	s.loop("loop3", loopStatus{device: s.Number("nvme2n1"), fileSystem: 5})
	s.write("nvme2n1p1", append(make([]byte, 512), "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00"...)) // its pod awaits the first use
	read := func(backing func(int) (loopStatus, error)) lvm.State {
		d := disksOf(s.TestNode)
		d.backing, d.Accepted = backing, r
		state, err := d.Read(t.Context())
		fixture.Must(t, err)
		return state
	}
	fails := func(int) (loopStatus, error) { return loopStatus{}, unix.EACCES }
	state := read(fails)
	if told := fmt.Sprint(state.UnreadDevices); len(state.Groups)+len(state.Devices) > 0 || state.CheckComplete() == nil || !strings.Contains(told, "no disk of this node is accepted yet") || !strings.Contains(told, "loop3") {
		t.Errorf("at the first run: %+v", state)
	}
	d := disksOf(s.TestNode)
	d.backing, d.Accepted = fails, r
	if _, err := d.AcceptDevice(t.Context(), filepath.Join(s.Dev, "sda1"), accepted.Command); err == nil || !strings.Contains(err.Error(), "loop3") {
		t.Errorf("an admin accepts a disk: %v", err)
	}
	if len(r.Entries()) > 0 || !r.First() {
		t.Errorf("the first use is over, and the record has %+v", r.Entries())
	}
	if state = read(s.ask); len(state.Groups) != 1 || len(r.Entries()) != 1 || len(state.UnreadDevices) > 0 {
		t.Errorf("when the loop device answers: %+v, recorded %+v", state, r.Entries())
	}
	s.Make("devices/pci0000:00/0000:00:1d.0/nvme/nvme5/nvme5n1", 259)
	s.Attribute(t, "nvme5n1", "device/model", "x")
	s.write("nvme5n1", forgePV("ffffff-ffff-ffff-ffff-ffff-ffff-ffffff", textOf(state.Groups[0], "ffffff-ffff-ffff-ffff-ffff-ffff-ffffff"), 64<<20))
	state = read(fails)
	if told := fmt.Sprint(state.Unaccepted); len(state.Groups) != 1 || len(state.UnreadDevices) > 0 || !strings.Contains(told, "nvme5n1") || !strings.Contains(told, "loop3") {
		t.Errorf("with a new disk: unread %q, not accepted %+v, groups %+v", state.UnreadDevices, state.Unaccepted, state.Groups)
	}
}

// TestMultipathIsAcceptedOnce: the parts of a multipath device are no candidates, and have its identity.
func TestMultipathIsAcceptedOnce(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.Attribute(t, "sda", "device/wwid", "naa.5000\n")
	s.Mapper("dm-5", "mpath-35000", "sda")
	fixture.Must(t, os.WriteFile(filepath.Join(s.Sys, "class/block/sda/holders/dm-5"), nil, 0o600))
	s.forge("sda")
	s.forge("dm-5")
	state := s.readOf(r)
	if len(state.Groups) != 1 || state.Groups[0].Problem != "" || len(r.Entries()) != 1 || r.Entries()[0].WWID != "naa.5000" {
		t.Errorf("%+v, recorded %+v", state, r.Entries())
	}
}

// TestRemovedDiskStaysAccepted: a device whose disks are removed while it is open is still the node's, and another driver's is not.
func TestRemovedDiskStaysAccepted(t *testing.T) {
	s, r := newStack(t), recordOf(t, "ebs.csi.aws.com")
	s.mounts()
	s.Mapper("dm-5", "mpath-35000", "sda")
	fixture.Must(t, os.WriteFile(filepath.Join(s.Sys, "class/block/sda/holders/dm-5"), nil, 0o600))
	s.forge("dm-5")
	d := s.reader()
	d.Accepted = r
	read := func() lvm.State {
		state, err := d.Read(t.Context())
		fixture.Must(t, err)
		return state
	}
	before := read()
	s.Mapper("dm-6", "mpath-36000", "sda")
	s.write("dm-6", forgePV("ffffff-ffff-ffff-ffff-ffff-ffff-ffffff", textOf(before.Groups[0], "ffffff-ffff-ffff-ffff-ffff-ffff-ffffff"), 64<<20))
	read()
	for _, name := range []string{"dm-5", "dm-6"} {
		fixture.Must(t, os.Remove(filepath.Join(s.Sys, "class/block", name, "slaves/sda")))
		s.Pull("gone"+name, name)
	}
	state := read()
	if len(state.Groups) != 1 || state.Groups[0].Seqno != before.Groups[0].Seqno || lvm.CheckResponsive(state.Groups[0]) == nil {
		t.Errorf("the group is %+v", state.Groups)
	}
	if told := fmt.Sprint(state.UnreadDevices, state.Unresponsive); !strings.Contains(told, "dm-5") || strings.Contains(told, "dm-6") {
		t.Errorf("unread: %s", told)
	}
}

// TestPartitionTableOverPV: a partition table that was written to a disk of the node's record hides its physical volume from LVM. The driver says
// so. It says nothing of another disk with an old label before its first partition.
func TestPartitionTableOverPV(t *testing.T) {
	s, r := newStack(t), recordOf(t)
	s.mounts()
	s.forge("sda")
	s.readOf(r)
	table := make([]byte, 512)
	table[510], table[511], table[446+12] = 0x55, 0xaa, 1
	s.write("sda", table)
	state := s.readOf(r)
	if told := fmt.Sprint(state.UnreadDevices); len(state.Groups) > 0 || state.CheckComplete() == nil || !strings.Contains(told, "a partition table") || !strings.Contains(told, "wipefs -a -t dos "+filepath.Join(s.Dev, "sda")) {
		t.Errorf("%+v", state)
	}
	other := recordOf(t)
	if state := s.readOf(other); len(state.Groups)+len(state.UnreadDevices) > 0 {
		t.Errorf("of a disk that was never the node's: %+v", state)
	}
}

// TestUnlabeledDisks: a disk that lost its label may be one of an active volume's. The record names those that had one; without a record it
// may be any.
func TestUnlabeledDisks(t *testing.T) {
	s, r := newStack(t), recordOf(t)
	s.mounts()
	s.forge("sda")
	s.readOf(r)
	s.write("sda", make([]byte, 4096))
	for record, what := range map[*accepted.Record]string{r: "with its record", nil: "without a record"} {
		if state := s.readOf(record); !slices.Contains(state.Unlabeled, filepath.Join(s.Dev, "sda")) {
			t.Errorf("%s: %+v", what, state)
		}
	}
	if state := s.readOf(recordOf(t)); len(state.Unlabeled) > 0 {
		t.Errorf("of a disk that was never the node's: %+v", state)
	}
}

// TestRemoteDiskNeedsCommand: a disk on a storage network is not accepted merely because the node has no other storage driver.
func TestRemoteDiskNeedsCommand(t *testing.T) {
	s, r := newStack(t), recordOf(t)
	s.mounts()
	s.readOf(r)
	s.Make("devices/platform/host9/session1/target9:0:0/9:0:0:1/block/sdq", 8)
	s.Attribute(t, "sdq", "device/model", "x")
	s.forge("sdq")
	if state := s.readOf(r); len(state.Groups) > 0 || len(state.Unaccepted) != 1 || !strings.Contains(state.Unaccepted[0].Reason, "storage network") {
		t.Errorf("%+v", state)
	}
}

func (s *stack) write(name string, content []byte) {
	s.T.Helper()
	f, err := os.OpenFile(filepath.Join(s.Dev, name), os.O_WRONLY, 0)
	fixture.Must(s.T, err)
	_, err = f.Write(content)
	fixture.Must(s.T, errors.Join(err, f.Close()))
}

// textOf is a text of the group, with a high seqno, on one PV alone.
func textOf(g lvm.Group, pv string) string {
	return fmt.Sprintf("%s {\nid = \"%s\"\nseqno = 4000000000\nformat = \"lvm2\"\nstatus = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\ntags = [\"fast\"]\nextent_size = 8192\n"+
		"max_lv = 0\nmax_pv = 0\nmetadata_copies = 0\nphysical_volumes {\npv0 {\nid = \"%s\"\ndevice = \"/dev/x\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\ndev_size = 131072\npe_start = 2048\npe_count = 15\n}\n}\n}\n"+
		"contents = \"Text Format Volume Group\"\nversion = 1\n", g.Name, g.UUID, pv)
}

// forgePV is a label, one metadata area and a group's text.
func forgePV(pv, text string, size int64) []byte {
	const start, area = 4096, 1<<20 - 4096
	img := make([]byte, 1<<20)
	le := binary.LittleEndian
	label := img[512:1024]
	copy(label, "LABELONE")
	le.PutUint64(label[8:], 1)
	le.PutUint32(label[20:], 32)
	copy(label[24:], "LVM2 001")
	copy(label[32:], strings.ReplaceAll(pv, "-", ""))
	le.PutUint64(label[64:], uint64(size))
	le.PutUint64(label[72:], 1<<20)
	le.PutUint64(label[104:], start)
	le.PutUint64(label[112:], area)
	le.PutUint32(label[16:], lvmChecksum(label[20:]))
	mda := img[start : start+512]
	copy(mda[4:], mdaMagic)
	le.PutUint32(mda[20:], 1)
	le.PutUint64(mda[24:], start)
	le.PutUint64(mda[32:], area)
	le.PutUint64(mda[40:], 512)
	le.PutUint64(mda[48:], uint64(len(text)))
	le.PutUint32(mda[56:], lvmChecksum([]byte(text)))
	le.PutUint32(mda, lvmChecksum(mda[4:512]))
	copy(img[start+512:], text)
	return img
}

// TestIdentityOfUnresponsiveDisk: a disk whose driver must ask it for its number delays a reading once, and for a moment.
func TestIdentityOfUnresponsiveDisk(t *testing.T) {
	s := newStack(t)
	serial := filepath.Join(s.Sys, "class/block/sda/serial")
	fixture.Must(t, unix.Mkfifo(serial, 0o600))
	device, i := BlockDevice{Name: "sda", Disk: true}, &identities{}
	for range 2 {
		if id, known := i.soon(s.Sys, device); known {
			t.Errorf("it did not answer, and is %+v", id)
		}
	}
	f, err := os.OpenFile(serial, os.O_WRONLY, 0)
	fixture.Must(t, err)
	_, err = f.WriteString("S1\n")
	fixture.Must(t, errors.Join(err, f.Close()))
	for known := false; !known; {
		var id accepted.Identity
		if id, known = i.soon(s.Sys, device); known && id.Serial != "S1" {
			t.Errorf("it is %+v", id)
		}
	}
}
