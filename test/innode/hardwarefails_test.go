//go:build innode

package innode

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// TestHardwareDiskFails: a disk that is a whole group fails, and stays in the node. The group has no capacity, the disk is in the list of lost
// ones, the metric says that it is missing, and a sentence names the device that cannot be read. A driver that has just started says the same.
// When the disk works again, the next pod has the data. The events and conditions of such a group need the API server: see
// test/scenario/faults.
func TestHardwareDiskFails(t *testing.T) {
	for name, serial := range map[string]string{"NVMe": "nvme-b", "SATA": "sata-a"} {
		t.Run(name, func(t *testing.T) { failWholeGroup(t, name, serial) })
	}
}

func failWholeGroup(t *testing.T, name, serial string) {
	group := "vg-failed-" + strings.ToLower(name)
	hardwareGroup(t, group, serial)
	c := connect(t)
	request := onDisks("failed "+name, group, 96*mebibyte)
	pod := c.opened(t, c.create(t, request), mountCapability("ext4"), nil)
	must(t, writes(pod.file("text"), "before"))
	settled(t)
	whole, disk := c.capacity(t, request.Parameters), diskOf(t, serial)

	repair := fail(t, serial)
	eventually(t, time.Minute, "a write fails", func() bool { return writes(pod.file("meanwhile"), "meanwhile") != nil })
	var unread string
	for _, which := range []string{"running", "next"} {
		unread = awaitLost(t, which, group, disk)
		eventually(t, 30*time.Second, "no capacity", func() bool { return c.capacity(t, request.Parameters) == 0 })
		if _, err := c.CreateVolume(t.Context(), onDisks("more", group, 16*mebibyte)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("with the %s driver, a volume on the failed disk: %v", which, err)
		}
		if which == "running" {
			renewDriver(t)
			c = connect(t)
			pod.client = c
		}
	}

	repair()
	eventually(t, time.Minute, "the capacity is what it was", func() bool { return c.capacity(t, request.Parameters) == whole })
	must(t, pod.restart(t, nil))
	reads(t, pod.file("text"), "before")
	must(t, writes(pod.file("text"), "after"))
	awaitNoConditions(t, group)
	row{
		Case: "the only disk of a group fails (EIO) and works again: " + name, Pod: "errors; the next pod has the data",
		Capacity:  fmt.Sprintf("%s; while it fails 0; then %s", mib(whole), mib(whole)),
		Condition: "the disk is in `lostDisks`, `nodelvm_physical_volume_missing` is 1", Message: unread,
	}.print(t, map[string]string{disk: formerName})
}

// fail lets each read and write of a disk fail until the test repairs it, or ends.
func fail(t *testing.T, serial string) (repair func()) {
	t.Helper()
	return spoil(t, "fail", serial)
}

// spoil acts on a disk until the test repairs it, or ends.
func spoil(t *testing.T, action, serial string) (repair func()) {
	t.Helper()
	act(t, action, serial)
	repair = sync.OnceFunc(func() { act(t, "repair", serial) })
	t.Cleanup(repair)
	return repair
}

// awaitLost waits until the driver reports that the group is lost, and returns the sentence about its disk.
func awaitLost(t *testing.T, which, group, disk string) (unread string) {
	t.Helper()
	eventually(t, time.Minute, "the "+which+" driver reports the disk of the failed group as lost, and why", func() bool {
		page := look(t)
		lost := slices.ContainsFunc(page.LostDisks, func(d report.LostDisk) bool { return string(d.Group) == group })
		at := slices.IndexFunc(page.Unread, func(sentence string) bool { return strings.Contains(sentence, disk) })
		if at >= 0 {
			unread = page.Unread[at]
		}
		return lost && at >= 0
	})
	const missing = `nodelvm_physical_volume_missing{`
	lines := strings.Split(metrics(t), "\n")
	if !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, missing) && strings.Contains(line, `"`+group+`"`) && strings.HasSuffix(line, " 1")
	}) {
		t.Errorf("with the %s driver, no metric says that the disk of %s is missing:\n%s", which, group,
			strings.Join(slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, missing) }), "\n"))
	}
	return unread
}

// metrics returns the driver's metrics.
func metrics(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+"/metrics", nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	return string(text)
}

// TestHardwareLegFails: the disk below the first leg of a RAID1 volume fails, and stays in the node. The pod goes on. When the disk works again,
// the condition names the command that uses it, and after this command the condition is gone.
func TestHardwareLegFails(t *testing.T) {
	const group = "vg-leg"
	serials := []string{"nvme-a", "nvme-b"} // the first leg is on the one whose physical volume has the lesser UUID
	hardwareGroup(t, group, serials...)
	c := connect(t)
	request := onDisks("leg", group, 96*mebibyte, "layout", "raid1")
	v := c.create(t, request)
	pod := c.opened(t, v, mountCapability("ext4"), nil)
	must(t, writes(pod.file("text"), "before"))
	settled(t)
	leg := output(t, realLVM, "lvs", "-a", "--noheadings", "-o", "devices", group+"/"+filepath.Base(v.GetVolumeId())+"_rimage_0")
	serial := serialOf(t, serials, strings.ReplaceAll(leg, "(", " ("))
	whole, disk := c.capacity(t, request.Parameters), diskOf(t, serial)

	t.Logf("%s, %s, below the first leg fails", serial, disk)
	repair := fail(t, serial)
	must(t, writes(pod.file("text"), "meanwhile"))
	must(t, readsDisk(t, sourceOf(t, pod.target)))
	awaitCondition(t, lvm.ConditionVolumeDegraded, group, v)
	eventually(t, 30*time.Second, "no capacity", func() bool { return c.capacity(t, request.Parameters) == 0 })

	repair()
	refresh := "lvchange --refresh " + group + "/" + filepath.Base(v.GetVolumeId())
	message := awaitRemedy(t, lvm.ConditionVolumeDegraded, group, v, refresh)
	must(t, command(realLVM, "lvchange", "--refresh", group+"/"+filepath.Base(v.GetVolumeId())))
	awaitNoConditions(t, group)
	eventually(t, time.Minute, "the capacity is what it was", func() bool { return c.capacity(t, request.Parameters) == whole })
	reads(t, pod.file("text"), "meanwhile")
	row{
		Case: "a disk below it fails (EIO) and works again: raid1", Pod: "goes on",
		Capacity:  fmt.Sprintf("%s; while it fails 0; then %s", mib(whole), mib(whole)),
		Condition: string(lvm.ConditionVolumeDegraded), Message: message,
	}.print(t, map[string]string{disk: formerName, filepath.Base(v.GetVolumeId()): "LV"})
}

// TestHardwarePoolFails: the disk with the metadata of a thin pool fails, and stays in the node. The kernel then keeps the pool from writing although
// the disk works again. The condition says what to do: when the next pod starts, the pool takes writes.
func TestHardwarePoolFails(t *testing.T) {
	const group = "vg-pool"
	serials := []string{"nvme-a", "nvme-b"}
	hardwareGroup(t, group, serials...)
	c := connect(t)
	request := onDisks("pool", group, 96*mebibyte, "layout", "thin")
	request.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()}
	v := c.create(t, request)
	pod := c.opened(t, v, blockCapability(), nil)
	next := 0
	write := func() error { // to a part that the pool has no chunk for yet, so that its metadata changes
		next++
		return command("dd", "if=/dev/urandom", "of="+pod.target, "bs=1M", "count=1", fmt.Sprint("seek=", next), "oflag=direct", "conv=notrunc,fsync", "status=none")
	}
	must(t, write())
	content := func() string { // of the first write
		return output(t, "sh", "-c", "dd if="+pod.target+" bs=1M count=1 skip=1 iflag=direct status=none | sha256sum")
	}
	before := content()
	settled(t)
	first := func(suffix string) string { // the disk with the beginning of a part of the pool
		devices := output(t, realLVM, "lvs", "-a", "--noheadings", "-o", "devices", "-S", "lv_name=~"+suffix+"$", group)
		device, _, _ := strings.Cut(devices, "(")
		return serialOf(t, serials, device)
	}
	if first("_tmeta") == first("_tdata") { // writes would fail before they change the metadata
		must(t, command(realLVM, "pvmove", "-qq", "-i", "1", "-n", lvm.DefaultPool+"_tmeta", diskOf(t, first("_tmeta"))))
	}
	serial := first("_tmeta")
	whole, disk := c.capacity(t, request.Parameters), diskOf(t, serial)

	t.Logf("%s, %s, below the pool's metadata fails", serial, disk)
	repair := fail(t, serial)
	if err := write(); err == nil {
		t.Error("a write succeeded without the pool's metadata")
	}
	eventually(t, 30*time.Second, "no capacity", func() bool { return c.capacity(t, request.Parameters) == 0 })

	repair()
	message := awaitCondition(t, lvm.ConditionThinPoolFailed, group, v)
	if err := write(); err == nil {
		t.Error("the pool takes writes again by itself")
	}
	must(t, pod.restart(t, nil))
	if now := content(); now != before {
		t.Errorf("the next pod reads %s instead of %s", now, before)
	}
	must(t, write())
	awaitNoConditions(t, group)
	eventually(t, time.Minute, "the capacity is what it was", func() bool { return c.capacity(t, request.Parameters) == whole })
	row{
		Case: "a disk below it fails (EIO) and works again: thin", Pod: "errors; the next pod has the data",
		Capacity:  fmt.Sprintf("%s; while it fails 0; then %s", mib(whole), mib(whole)),
		Condition: string(lvm.ConditionThinPoolFailed), Message: message,
	}.print(t, map[string]string{disk: formerName})
}

// TestHardwareDiskUnresponsive: all reads and writes of a disk wait, until the kernel resets its controller. The driver says so, and serves other groups. When
// the disk answers again, the pod goes on, and no condition remains. A disk that is only slow has none.
func TestHardwareDiskUnresponsive(t *testing.T) {
	const group, other = "vg-silent", "vg-answers"
	hardwareGroup(t, group, "nvme-b")
	hardwareGroup(t, other, "nvme-c")
	c := connect(t)
	request, beside := onDisks("silent", group, 96*mebibyte), onDisks("beside", other, 16*mebibyte)
	v := c.create(t, request)
	pod := c.opened(t, v, mountCapability("ext4"), nil)
	must(t, writes(pod.file("text"), "before"))
	settled(t)
	whole := c.capacity(t, request.Parameters)

	timeouts := func() string { return output(t, "sh", "-c", "dmesg | grep -c 'nvme.*timeout, ' || true") }
	none := timeouts()
	repair := spoil(t, "block", "nvme-b")
	written := make(chan error, 1)
	go func() { written <- writes(pod.file("text"), "meanwhile") }()
	message := awaitCondition(t, lvm.ConditionDiskUnresponsive, group, nil)
	eventually(t, 30*time.Second, "no capacity", func() bool { return c.capacity(t, request.Parameters) == 0 })
	began := time.Now()
	c.create(t, beside)
	t.Logf("while the disk did not answer, a volume on another one took %.0f s", time.Since(began).Seconds())

	eventually(t, 3*time.Minute, "the kernel gives up waiting", func() bool { return timeouts() != none })
	repair()
	must(t, <-written)
	reads(t, pod.file("text"), "meanwhile")
	awaitNoConditions(t, group)
	eventually(t, time.Minute, "the capacity is what it was", func() bool { return c.capacity(t, request.Parameters) == whole })

	repair = spoil(t, "slow", "nvme-b")
	c.create(t, onDisks("on a slow disk", group, 16*mebibyte))
	must(t, writes(pod.file("text"), "slowly"))
	if found, is := conditionOf(t, lvm.ConditionDiskUnresponsive, group, nil); is {
		t.Errorf("of a disk that is slow: %+v", found)
	}
	repair()
	row{
		Case: "the only disk of a group is unresponsive and answers again: NVMe", Pod: "waits, then goes on",
		Capacity:  fmt.Sprintf("%s; meanwhile 0; then %s", mib(whole), mib(whole)),
		Condition: string(lvm.ConditionDiskUnresponsive), Message: message,
	}.print(t, map[string]string{diskOf(t, "nvme-b"): formerName})
}
