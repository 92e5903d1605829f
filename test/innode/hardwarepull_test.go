//go:build innode

package innode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestHardwarePull: each disk below a volume, one after the other, is pulled while a pod writes to it, and returns with another name. The pod of a
// RAID volume goes on, and the driver uses the returned disk by itself. The pod of any other volume sees errors, a condition says what to do, and
// the next pod has the data. The capacity is that of the disks in the node. No volume is created twice, and none is called lost.
func TestHardwarePull(t *testing.T) {
	two := []string{"nvme-a", "nvme-b"}
	for i, c := range []pullCase{
		{name: "linear", serials: two},
		{name: "linear, the whole group is on the disk", serials: []string{"nvme-a"}},
		{name: "linear, a SCSI disk", serials: []string{"scsi-a"}},
		{name: "encrypted", serials: two, parameters: []string{"encryption", "luks2"}},
		{name: "thin", serials: two, parameters: []string{"layout", "thin"}},
		{name: "striped", serials: two, parameters: []string{"layout", "striped"}},
		{name: "raid1", serials: two, parameters: []string{"layout", "raid1"}, goesOn: true},
		{name: "raid1, encrypted", serials: two, parameters: []string{"layout", "raid1", "encryption", "luks2"}, goesOn: true},
		{name: "raid5", serials: []string{"nvme-a", "nvme-b", "nvme-c"}, parameters: []string{"layout", "raid5"}, goesOn: true},
	} {
		c.group = fmt.Sprintf("vg-pulled-%d", i+1)
		t.Run(c.name, c.run)
	}
}

// pullCase is a volume in its own group. Each of the group's disks below it is pulled.
type pullCase struct {
	name       string
	serials    []string // of the group's disks
	parameters []string // of the class
	goesOn     bool     // LVM can read and write the volume without the disk
	group      string   // its name
}

func (p pullCase) run(t *testing.T) {
	hardwareGroup(t, p.group, p.serials...)
	c := connect(t)
	request := onDisks("pulled "+p.name, p.group, 96*mebibyte, p.parameters...)
	secret := map[string]string(nil)
	if slices.Contains(p.parameters, "luks2") {
		secret = newSecret(t)
	}
	pod := c.opened(t, c.create(t, request), mountCapability("ext4"), secret)
	settled(t)
	for i, serial := range p.below(t) {
		r, names := p.pullDisk(t, serial, pod, request.Parameters, secret)
		if i == 0 {
			r.print(t, names)
		}
	}
}

// pullDisk pulls a disk and puts it back. It returns what the run shows, and names for the devices in its message.
func (p pullCase) pullDisk(t *testing.T, serial string, pod opened, parameters, secret map[string]string) (row, map[string]string) {
	must(t, writes(pod.file("text"), "before "+serial))
	whole, before, former := pod.client.capacity(t, parameters), volumes(t), diskOf(t, serial)
	t.Logf("pulls %s, %s; the capacity is %s", serial, former, mib(whole))

	pull(t, serial)
	r := row{Case: "a disk below it is pulled and returns: " + p.name}
	p.checkPod(t, pod)
	r.Condition, r.Message = p.awaitMissing(t, pod.v)
	eventually(t, 30*time.Second, "no capacity in a group without one of its disks", func() bool { return pod.client.capacity(t, parameters) == 0 })

	back := plug(t, serial)
	if back == former {
		t.Errorf("the disk is back under its former name %s, so the test shows nothing", former)
	}
	p.useAgain(t, &r, pod, secret)
	awaitNoConditions(t, p.group)
	eventually(t, time.Minute, "the capacity is what it was", func() bool { return pod.client.capacity(t, parameters) == whole })
	if after := volumes(t); !slices.Equal(before, after) {
		t.Errorf("the volumes were %q, and are %q", before, after)
	}
	reads(t, pod.file("text"), "before "+serial)
	must(t, writes(pod.file("text"), "after"))
	r.Capacity = fmt.Sprintf("%s; without the disk 0; then %s", mib(whole), mib(whole))
	return r, map[string]string{former: formerName, back: presentName}
}

// below returns the serial numbers of the disks that the volume, or its thin pool, is on.
func (p pullCase) below(t *testing.T) []string {
	t.Helper()
	used := strings.Fields(output(t, realLVM, "pvs", "--noheadings", "-o", "pv_name", "-S", "pv_used>0 && vg_name="+p.group))
	return slices.DeleteFunc(slices.Clone(p.serials), func(serial string) bool { return !slices.Contains(used, diskOf(t, serial)) })
}

// checkPod checks what the pod of the volume can do without the disk.
func (p pullCase) checkPod(t *testing.T, pod opened) {
	t.Helper()
	if p.goesOn {
		must(t, writes(pod.file("meanwhile"), "meanwhile"))
		must(t, readsDisk(t, sourceOf(t, pod.target)))
		return
	}
	eventually(t, time.Minute, "a write fails", func() bool { return writes(pod.file("meanwhile"), "meanwhile") != nil })
}

// awaitMissing waits until the driver says that the disk is missing, of the group and of the volume. If it was the whole group, the list of lost
// disks has it: the conditions of such a group, and of its claims, need the API server.
func (p pullCase) awaitMissing(t *testing.T, v *csi.Volume) (condition, message string) {
	t.Helper()
	if len(p.serials) > 1 {
		kind := lvm.ConditionVolumeDataMissing
		if p.goesOn {
			kind = lvm.ConditionVolumeDegraded
		}
		awaitCondition(t, lvm.ConditionPhysicalVolumeMissing, p.group, nil)
		return string(kind), awaitCondition(t, kind, p.group, v)
	}
	eventually(t, time.Minute, "the group's disk is in the list of lost ones", func() bool {
		for _, d := range look(t).LostDisks {
			if string(d.Group) == p.group {
				message = "lost: " + d.String()
			}
		}
		return message != ""
	})
	return "", message
}

// useAgain waits until the volume uses the disk that is back. The pod of a RAID volume needs no restart.
func (p pullCase) useAgain(t *testing.T, r *row, pod opened, secret map[string]string) {
	t.Helper()
	if p.goesOn {
		r.Pod = "goes on; the returned disk is used at once"
		awaitNoConditions(t, p.group)
		reads(t, pod.file("meanwhile"), "meanwhile")
		return
	}
	r.Pod = "errors; the next pod has the data"
	r.Condition = strings.TrimPrefix(r.Condition+", then "+string(lvm.ConditionVolumeOnRemovedDisk), ", then ")
	r.Message = awaitCondition(t, lvm.ConditionVolumeOnRemovedDisk, p.group, pod.v)
	must(t, pod.restart(t, secret))
}
