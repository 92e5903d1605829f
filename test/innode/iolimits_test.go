//go:build innode

package innode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

const (
	cgroups     = "/sys/fs/cgroup"
	limitedPod  = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c001"
	unknownPod  = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c002"
	limitedRate = 4 * mebibyte // bytes a second, and 100 requests
)

// cgroupOf is the cgroup that the kubelet makes for a pod, with the cgroup driver cgroupfs.
func cgroupOf(pod string) string { return filepath.Join(cgroups, "kubepods/burstable/pod"+pod) }

// withIOLimits makes the cgroups of two pods as a kubelet does, but for the io controller, and starts a driver that limits I/O.
func withIOLimits(t *testing.T) {
	t.Helper()
	for _, dir := range []string{cgroups, filepath.Join(cgroups, "kubepods"), filepath.Join(cgroups, "kubepods/burstable")} {
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0o600))
	}
	for _, pod := range []string{limitedPod, unknownPod} {
		must(t, os.MkdirAll(filepath.Join(cgroupOf(pod), "container"), 0o755))
	}
	driverFlags = []string{"--io-limits=" + cgroups}
	renewDriver(t)
	t.Cleanup(func() {
		driverFlags = nil
		renewDriver(t)
		for _, dir := range []string{cgroupOf(limitedPod) + "/container", cgroupOf(limitedPod), cgroupOf(unknownPod) + "/container", cgroupOf(unknownPod),
			cgroups + "/kubepods/burstable", cgroups + "/kubepods"} {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
		must(t, os.WriteFile(filepath.Join(cgroups, "cgroup.subtree_control"), []byte("-io -memory"), 0o600))
	})
}

// modify gives a volume the limits of a VolumeAttributesClass: pairs of a parameter and its value.
func (c client) modify(t *testing.T, v *csi.Volume, parameters ...string) error {
	t.Helper()
	r := &csi.ControllerModifyVolumeRequest{VolumeId: v.GetVolumeId(), MutableParameters: map[string]string{}}
	for i := 0; i < len(parameters); i += 2 {
		r.MutableParameters[parameters[i]] = parameters[i+1]
	}
	_, err := c.ControllerModifyVolume(t.Context(), r)
	return err
}

// pathInPod is where the kubelet has a volume published to a pod.
func pathInPod(v *csi.Volume, capability *csi.VolumeCapability, pod string) string {
	if capability.GetBlock() != nil {
		return filepath.Join(work, "kubelet/plugins/kubernetes.io/csi/volumeDevices/publish", filepath.Base(v.GetVolumeId()), pod)
	}
	return filepath.Join(work, "kubelet/pods", pod, "volumes/kubernetes.io~csi", filepath.Base(v.GetVolumeId()), "mount")
}

// ofPod stages a volume and publishes it to a pod; that is undone when the test ends. It returns the pod's path.
func (c client) ofPod(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability, secret map[string]string, pod string) string {
	t.Helper()
	o := c.staged(t, v, capability, secret, pathInPod(v, capability, pod))
	must(t, o.publish(t))
	return o.target
}

// inPod runs a command in a container's cgroup of a pod, and returns how long it took.
func inPod(t *testing.T, pod, script string) time.Duration {
	t.Helper()
	return inCgroup(t, cgroupOf(pod)+"/container", script)
}

// inCgroup does the same in any cgroup.
func inCgroup(t *testing.T, cgroup, script string) time.Duration {
	t.Helper()
	begin := time.Now()
	saidIn(t, cgroup, script)
	return time.Since(begin)
}

// saidIn returns what a command in a cgroup writes to its standard error.
func saidIn(t *testing.T, cgroup, script string) string {
	t.Helper()
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", "echo $$ >"+cgroup+"/cgroup.procs; "+script)
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, errs.String())
	}
	return errs.String()
}

// copyTime returns how many seconds dd in a pod says that it took. On a busy machine its start and end take a part of a second more.
func copyTime(t *testing.T, pod, dd string) (seconds float64) {
	t.Helper()
	said := saidIn(t, cgroupOf(pod)+"/container", dd)
	_, last, found := strings.Cut(said, "copied, ") // "12582912 bytes (13 MB, 12 MiB) copied, 3.01 s, 4.2 MB/s"
	if _, err := fmt.Sscanf(last, "%g s", &seconds); err != nil || !found {
		t.Fatalf("%s says %q: %v", dd, said, err)
	}
	return seconds
}

// ioMax returns the lines of io.max of a pod.
func ioMax(t *testing.T, pod string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cgroupOf(pod), "io.max"))
	must(t, err)
	return strings.TrimSpace(string(text))
}

// deviceOf is the number of the device that a pod uses, "253:4".
func deviceOf(t *testing.T, target string) string {
	t.Helper()
	if info, err := os.Stat(target); err == nil && info.Mode()&os.ModeDevice != 0 {
		return output(t, "stat", "--dereference", "--format=%Hr:%Lr", target)
	}
	return output(t, "findmnt", "--noheadings", "--output", "MAJ:MIN", target)
}

// limitedLayouts are the kinds of volumes whose limits are measured. The kernel limits the device that the pod uses, whatever is below.
var limitedLayouts = map[string]func(name string) *csi.CreateVolumeRequest{
	"linear": func(name string) *csi.CreateVolumeRequest { return createRequest(name, 96*mebibyte) },
	"thin":   func(name string) *csi.CreateVolumeRequest { return thinRequest(name, 96*mebibyte) },
	"raid1": func(name string) *csi.CreateVolumeRequest {
		return createRequest(name, 96*mebibyte, with("volumeGroup", "vg-r"), with("layout", "raid1"))
	},
	"raw": func(name string) *csi.CreateVolumeRequest {
		return createRequest(name, 96*mebibyte, func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()} })
	},
	"encrypted": func(name string) *csi.CreateVolumeRequest { return encrypted(createRequest(name, 96*mebibyte)) },
}

// TestIOLimits: the rate that a pod measures is within 10 % of its volume's limits, for direct and buffered I/O and for requests, and without
// limits it is not near. The lines of other devices, and the cgroups of other pods, stay as they are.
func TestIOLimits(t *testing.T) {
	withIOLimits(t)
	for name, request := range limitedLayouts {
		t.Run(name, func(t *testing.T) {
			c, r := connect(t), request("limited-"+name)
			v := c.create(t, r)
			must(t, c.modify(t, v, "readBandwidth", "4Mi", "writeBandwidth", "4Mi"))
			target := c.ofPod(t, v, r.GetVolumeCapabilities()[0], secretOf(t, r), limitedPod)
			device := deviceOf(t, target)
			if got, want := ioMax(t, limitedPod), fmt.Sprintf("%s rbps=%d wbps=%[2]d riops=max wiops=max", device, limitedRate); got != want {
				t.Fatalf("io.max is %q, want %q", got, want)
			}
			if got := ioMax(t, unknownPod); got != "" {
				t.Errorf("io.max of another pod is %q", got)
			}
			file := target
			if name != "raw" {
				file = filepath.Join(target, "file")
			}
			const seconds = 3
			measure := func(what, script string, limited bool) {
				t.Helper()
				took := copyTime(t, limitedPod, script)
				t.Logf("%s: %.2f of the limit", what, seconds/took)
				if rate := seconds / took; limited && (rate < 0.9 || rate > 1.1) || !limited && took > seconds/1.5 {
					t.Errorf("%s, limited %t: %.2f s instead of %d s", what, limited, took, seconds)
				}
			}
			bytes := fmt.Sprintf("bs=256k count=%d", seconds*limitedRate/(256<<10))
			measure("direct writes", "dd if=/dev/zero of="+file+" oflag=direct conv=notrunc "+bytes, true)
			measure("direct reads", "dd of=/dev/null if="+file+" iflag=direct "+bytes, true)
			must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o600))
			measure("buffered writes", "dd if=/dev/zero of="+file+" conv=notrunc,fsync "+bytes, true)
			must(t, os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0o600))
			measure("buffered reads", "dd of=/dev/null if="+file+" "+bytes, true)

			must(t, c.modify(t, v, "writeIOPS", "100", "readIOPS", "100"))
			requests := fmt.Sprintf("bs=4k count=%d", seconds*100)
			measure("write requests", "dd if=/dev/zero of="+file+" oflag=direct conv=notrunc "+requests, true)
			measure("read requests", "dd of=/dev/null if="+file+" iflag=direct "+requests, true)
			must(t, c.modify(t, v, "writeIOPS", "max"))
			if got := ioMax(t, limitedPod); got != "" {
				t.Errorf("without limits, io.max is %q", got)
			}
			measure("unlimited writes", "dd if=/dev/zero of="+file+" oflag=direct conv=notrunc "+bytes, false)
		})
	}
}

// TestIOLimitsChange: limits change while the pod writes, without a pause; they are there again after a restart of the driver that was killed
// while they were lifted, and after another program took the io controller away; a foreign line stays.
func TestIOLimitsChange(t *testing.T) {
	withIOLimits(t)
	c := connect(t)
	v := c.create(t, createRequest("changed", 96*mebibyte))
	must(t, c.modify(t, v, "writeBandwidth", "1Mi"))
	target := c.ofPod(t, v, mountCapability("ext4"), nil, limitedPod)
	device := deviceOf(t, target)
	loop := output(t, "findmnt", "--noheadings", "--output", "MAJ:MIN", "/") // a line of a device that is not the driver's
	foreign := loop + " rbps=max wbps=1073741824 riops=max wiops=max"
	must(t, os.WriteFile(filepath.Join(cgroupOf(limitedPod), "io.max"), []byte(foreign), 0o600))
	expect := func(what, wbps string) {
		t.Helper()
		want := device + " rbps=max wbps=" + wbps + " riops=max wiops=max"
		eventually(t, 30*time.Second, what, func() bool { return strings.Contains(ioMax(t, limitedPod), want) })
		if got := ioMax(t, limitedPod); !strings.Contains(got, foreign) {
			t.Errorf("%s: io.max is %q", what, got)
		}
	}
	expect("published", "1048576")

	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	load := exec.CommandContext(ctx, "sh", "-ec", "echo $$ >"+cgroupOf(limitedPod)+"/container/cgroup.procs; exec dd if=/dev/zero of="+target+"/load oflag=direct bs=256k count=240")
	must(t, load.Start())
	begin := time.Now()
	must(t, c.modify(t, v, "writeBandwidth", "2Mi"))
	expect("raised", "2097152")
	must(t, c.modify(t, v, "writeBandwidth", "512Ki"))
	expect("lowered", "524288")
	must(t, c.modify(t, v, "writeBandwidth", "max"))
	must(t, load.Wait()) // at the first limit it takes a minute
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the writer was delayed for %s by limits that are removed", took)
	}

	must(t, c.modify(t, v, "writeBandwidth", "1Mi"))
	write := func(file, text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(filepath.Join(cgroupOf(limitedPod), "io.max"), device+" wbps=max")
	renewDriver(t)
	connect(t)
	expect("after the driver's restart", "1048576")
	write(filepath.Join(cgroups, "kubepods/burstable/cgroup.subtree_control"), "-io")
	renewDriver(t)
	eventually(t, 30*time.Second, "the io controller and the limit are back", func() bool {
		text, err := os.ReadFile(filepath.Join(cgroupOf(limitedPod), "io.max"))
		return err == nil && strings.Contains(string(text), device+" rbps=max wbps=1048576")
	})
}

// slowPod is a volume that limitedPod writes 1 MiB a second to.
type slowPod struct {
	opened
	secret map[string]string
	limits string // the lines of io.max
}

func (c client) slowPod(t *testing.T, r *csi.CreateVolumeRequest) slowPod {
	t.Helper()
	v, secret, capability := c.create(t, r), secretOf(t, r), mountCapability("ext4")
	must(t, c.modify(t, v, "writeBandwidth", "1Mi"))
	p := slowPod{c.staged(t, v, capability, secret, pathInPod(v, capability, limitedPod)), secret, ""}
	must(t, p.publish(t))
	if p.limits = ioMax(t, limitedPod); p.limits == "" {
		t.Fatal("the pod has no limits")
	}
	return p
}

// expectNoWait fails the test if what runs waits for the pages that pods have dirtied, at these paths: at the limit they take 20 s.
func expectNoWait(t *testing.T, what string, pods map[string]string, run func()) {
	t.Helper()
	for pod, path := range pods {
		inPod(t, pod, fmt.Sprintf("dd if=/dev/zero of=%s/file bs=1M count=20", path))
	}
	begin := time.Now()
	run()
	took := time.Since(begin)
	t.Logf("%s took %s", what, took)
	if took > 10*time.Second {
		t.Errorf("%s took %s", what, took)
	}
}

// expectIOMax fails the test if the limits of limitedPod are not these.
func expectIOMax(t *testing.T, want string) {
	t.Helper()
	if got := ioMax(t, limitedPod); got != want {
		t.Errorf("io.max is %q, and was %q", got, want)
	}
}

// TestLimitedSnapshot: a snapshot of a limited volume with dirty data does not wait for the pod's rate, nor does its unmount, and the limits
// are there again afterwards.
func TestLimitedSnapshot(t *testing.T) {
	withIOLimits(t)
	for name, request := range map[string]*csi.CreateVolumeRequest{
		"thin": thinRequest("held", 96*mebibyte), "encrypted": encrypted(thinRequest("held-encrypted", 96*mebibyte)),
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t).slowPod(t, request)
			pods := map[string]string{limitedPod: p.target}
			expectNoWait(t, "the snapshot", pods, func() { p.snapshot(t, "held-"+name, p.v) })
			expectIOMax(t, p.limits)
			expectNoWait(t, "the end of the pod", pods, func() {
				_, err := p.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: p.v.GetVolumeId(), TargetPath: p.target})
				must(t, err)
				must(t, command("sync", "--file-system", filepath.Dir(filepath.Dir(p.target))))
				expectIOMax(t, "")
			})
		})
	}
}

// TestLimitedExpansion: neither does the expansion of a limited volume with dirty data wait for the pod's rate: LVM would hold the lock of the group,
// and other tenants' volumes would wait with it.
func TestLimitedExpansion(t *testing.T) {
	withIOLimits(t)
	for _, name := range []string{"linear", "thin", "raid1", "encrypted"} {
		t.Run(name, func(t *testing.T) {
			p := connect(t).slowPod(t, limitedLayouts[name]("grown-"+name))
			expectNoWait(t, "the expansion", map[string]string{limitedPod: p.target}, func() { must(t, p.grow(t, 128*mebibyte, p.secret)) })
			expectIOMax(t, p.limits)
		})
	}
}

// TestLimitedGroupSnapshot: neither does a group snapshot of a limited volume and another one wait for the pod's rate.
func TestLimitedGroupSnapshot(t *testing.T) {
	withIOLimits(t)
	c := connect(t)
	free := c.create(t, changed(thinRequest("group-free", 96*mebibyte), inGroup("vg-b")))
	p := c.slowPod(t, thinRequest("group-limited", 96*mebibyte))
	pods := map[string]string{limitedPod: p.target, unknownPod: c.ofPod(t, free, mountCapability("ext4"), nil, unknownPod)}
	for round := range 2 {
		var made *csi.VolumeGroupSnapshot
		expectNoWait(t, "the group snapshot", pods, func() { made = c.groupSnapshot(t, fmt.Sprintf("limited-%d", round), p.v, free) })
		if len(made.GetSnapshots()) != 2 {
			t.Errorf("the group snapshot is %v", made)
		}
		expectIOMax(t, p.limits)
		c.deleteGroup(t, made.GetGroupSnapshotId())
	}
	if got := ioMax(t, unknownPod); got != "" {
		t.Errorf("io.max of the other pod is %q", got)
	}
}

// TestReusedDeviceNumber: what a volume's device left in io.max of a pod that lives on ends with the device. The next device with its number, of a
// volume without limits, has none in that pod.
func TestReusedDeviceNumber(t *testing.T) {
	withIOLimits(t)
	for _, name := range []string{"linear", "encrypted"} {
		capability, device := mountCapability("ext4"), ""
		t.Run(name, func(t *testing.T) {
			p := connect(t).slowPod(t, limitedLayouts[name]("former-"+name))
			device = deviceOf(t, p.target)
			_, unpublish := p.calls(t, p.opened)
			unpublish.check(t)
			expectIOMax(t, "")
			must(t, os.WriteFile(filepath.Join(cgroupOf(limitedPod), "io.max"), []byte(p.limits), 0o600))
			expectIOMax(t, p.limits)
		})
		t.Run(name+" after it", func(t *testing.T) {
			c, r := connect(t), limitedLayouts[name]("next-"+name)
			if now := deviceOf(t, c.ofPod(t, c.create(t, r), capability, secretOf(t, r), limitedPod)); now != device {
				t.Fatalf("the next device has the number %s, and the former had %s", now, device)
			}
			expectIOMax(t, "")
		})
	}
}
