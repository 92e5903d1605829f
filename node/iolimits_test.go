package node

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/iolimit"
	"github.com/nodelvm/nodelvm/node/iolimit/iolimittest"
	"github.com/nodelvm/nodelvm/node/mount"
	"github.com/nodelvm/nodelvm/report"
)

const (
	podOne, podTwo       = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c001", "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c002"
	cgroupOne, cgroupTwo = "kubepods/burstable/pod" + podOne, "kubepods/pod" + podTwo
	limitsOfDevice       = "253:3 rbps=max wbps=1048576 riops=100 wiops=max"
)

var limited = lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100, WriteBandwidth: lvm.MiB}}

func pathOf(pod string) string {
	return "/var/lib/kubelet/pods/" + pod + "/volumes/kubernetes.io~csi/pvc-1/mount"
}

func target(path string) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) { r.TargetPath = path }
}

// limitedNode is a service over a fake with a limited volume that is staged, and the cgroups of two pods.
type limitedNode struct {
	*Server
	t    *testing.T
	fake *fake
	tree *iolimittest.Tree
}

func newLimitedNode(t *testing.T) *limitedNode {
	t.Helper()
	tree, err := iolimittest.New(t.TempDir())
	for _, name := range []string{cgroupOne, cgroupTwo} {
		if err == nil {
			err = tree.Make(name)
		}
	}
	must(t, err)
	f := newFake()
	f.volume.Limits = limited
	f.mounts["/staging"], f.kinds["/staging"] = fsMount(ourDevice, false), mount.PathEmptyDir
	n := &limitedNode{t: t, fake: f, tree: tree}
	n.restart()
	return n
}

// restart replaces the service by one that knows nothing.
func (n *limitedNode) restart() {
	f := n.fake
	n.Server = New(Config{NodeName: "n", Devices: f, Encryption: &f.luks, Tools: f, Mounts: f, MountedFileSystems: f, BlockDevices: f,
		IOLimits: iolimit.New(iolimit.Config{Dir: n.tree.Dir, Write: n.tree.Write})})
}

func (n *limitedNode) publishAt(path string) error {
	_, err := n.NodePublishVolume(n.t.Context(), request(target(path)))
	return err
}

func (n *limitedNode) unpublishAt(path string) error {
	_, err := n.NodeUnpublishVolume(n.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: path})
	return err
}

// expectLimits compares io.max of a pod's cgroup.
func (n *limitedNode) expectLimits(cgroup string, want ...string) {
	n.t.Helper()
	if got := n.tree.Max(cgroup); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		n.t.Errorf("io.max of %s: %q, want %q", cgroup, got, want)
	}
}

// TestLimitsOfAPod: a pod has the limits before it has the volume, and no more when its part of the volume is unmounted.
func TestLimitsOfAPod(t *testing.T) {
	n := newLimitedNode(t)
	n.fake.during = func(call string) {
		switch {
		case call == "bind /staging "+pathOf(podOne)+" writable":
			n.expectLimits(cgroupOne, limitsOfDevice)
		case strings.HasPrefix(call, "unmount "+pathOf(podOne)):
			n.expectLimits(cgroupOne)
			n.expectLimits(cgroupTwo, limitsOfDevice)
		}
	}
	must(t, n.publishAt(pathOf(podOne)))
	n.expectLimits(cgroupTwo)
	n.tree.Writes()
	must(t, n.publishAt(pathOf(podOne))) // the kubelet repeats it
	if writes := n.tree.Writes(); len(writes) > 0 {
		t.Errorf("writes %q", writes)
	}
	must(t, n.publishAt(pathOf(podTwo)))
	must(t, n.unpublishAt(pathOf(podOne)))
	n.expectLimits(cgroupTwo, limitsOfDevice)
	must(t, n.unpublishAt(pathOf(podOne)))
	must(t, n.publishAt("/target")) // no pod's path
	must(t, n.tree.Remove(cgroupTwo))
	must(t, n.unpublishAt(pathOf(podTwo)))
}

// TestLimitsOfRawAndEncryptedVolumes: the limits are those of the device that the pod uses.
func TestLimitsOfRawAndEncryptedVolumes(t *testing.T) {
	n := newLimitedNode(t)
	delete(n.fake.mounts, "/staging")
	raw := "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + podOne
	publish := func(change ...func(*csi.NodePublishVolumeRequest)) {
		t.Helper()
		_, err := n.NodePublishVolume(t.Context(), request(append(change, target(raw), rawBlock)...))
		must(t, err)
	}
	publish()
	n.expectLimits(cgroupOne, limitsOfDevice)
	must(t, n.unpublishAt(raw))
	n.expectLimits(cgroupOne)
	n.fake.luks.class, n.fake.luks.open = lvm.Class{Encryption: lvm.EncryptionLUKS2}, true
	publish(attribute(api.AttributeEncryption, "luks2"))
	n.expectLimits(cgroupOne, strings.Replace(limitsOfDevice, ":3", ":7", 1))
}

// TestPodWithoutCgroup: while the kubelet has not made the pod's cgroup, the pod does not get the volume, and the kubelet repeats the call, which
// waits a moment for the cgroup.
func TestPodWithoutCgroup(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.tree.Remove(cgroupOne))
	synctest.Test(t, func(t *testing.T) {
		n := &limitedNode{n.Server, t, n.fake, n.tree}
		if err := n.publishAt(pathOf(podOne)); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), podOne) {
			t.Errorf("kind %d: %v", lvm.KindOf(err), err)
		}
		n.fake.expect(t)
		time.AfterFunc(time.Second, func() {
			if err := n.tree.Make(cgroupOne); err != nil {
				t.Error(err)
			}
		})
		must(t, n.publishAt(pathOf(podOne)))
		n.expectLimits(cgroupOne, limitsOfDevice)
	})
	must(t, n.unpublishAt(pathOf(podOne)))
	must(t, n.tree.Remove(cgroupOne))
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.ApplyLimits(t.Context(), testID))
	must(t, n.publishAt(pathOf(podOne)))
}

// TestNodeWithoutIOController: the pod starts, the volume has a condition until its limits are set, and a change of the limits is refused.
func TestNodeWithoutIOController(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.tree.Withhold())
	conditions := func(want int) (text string) {
		t.Helper()
		must(t, ignoreConflict(n.CheckLimits(t.Context())))
		found, err := n.Health(t.Context())
		must(t, err)
		found = slices.DeleteFunc(found, func(c lvm.Condition) bool { return c.Type != lvm.ConditionIOLimitsNotSet })
		if len(found) != want {
			t.Errorf("conditions %+v, want %d", found, want)
		}
		for _, c := range found {
			text = c.Text
		}
		return text
	}
	must(t, n.publishAt(pathOf(podOne)))
	if text := conditions(1); !strings.Contains(text, "the cgroup / of this node does not have the io controller") {
		t.Errorf("condition %q", text)
	}
	if err := n.ApplyLimits(t.Context(), testID); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("kind %d: %v", lvm.KindOf(err), err)
	}
	tree, err := iolimittest.New(n.tree.Dir) // another boot, with the controller
	must(t, err)
	must(t, n.tree.Write(filepath.Join(tree.Dir, "cgroup.subtree_control"), "+io"))
	conditions(0)
	n.expectLimits(cgroupOne, limitsOfDevice)
	must(t, n.unpublishAt(pathOf(podOne)))
	conditions(0)
}

// TestVolumeWithoutDeviceHasNoLimitsToSet: when an encrypted volume is closed, no pod uses it, and nothing says any more that its limits are not set.
func TestVolumeWithoutDeviceHasNoLimitsToSet(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.tree.Withhold())
	delete(n.fake.mounts, "/staging")
	raw := "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + podOne
	n.fake.luks.class, n.fake.luks.open = lvm.Class{Encryption: lvm.EncryptionLUKS2}, true
	_, err := n.NodePublishVolume(t.Context(), request(target(raw), rawBlock, attribute(api.AttributeEncryption, "luks2")))
	must(t, err)
	expect := func(want int) {
		t.Helper()
		must(t, ignoreConflict(n.CheckLimits(t.Context())))
		if found := n.limits.conditions([]lvm.Volume{{ID: testID}}); len(found) != want {
			t.Errorf("conditions %+v, want %d", found, want)
		}
	}
	expect(1)
	must(t, n.unpublishAt(raw))
	n.fake.luks.open = false
	expect(0)
}

func ignoreConflict(err error) error {
	if lvm.KindOf(err) == lvm.KindConflict {
		return nil
	}
	return err
}

// TestChangedLimits: a change reaches all pods that use the volume, and no other.
func TestChangedLimits(t *testing.T) {
	n := newLimitedNode(t)
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.publishAt(pathOf(podOne)))
	must(t, n.ApplyLimits(t.Context(), testID))
	if writes := n.tree.Writes(); len(writes) > 0 {
		t.Errorf("without limits: writes %q", writes)
	}
	n.fake.volume.Limits = limited
	must(t, n.ApplyLimits(t.Context(), testID))
	n.expectLimits(cgroupOne, limitsOfDevice)
	n.expectLimits(cgroupTwo)
	must(t, n.publishAt(pathOf(podTwo)))
	n.fake.volume.Limits = lvm.Limits{Fixed: lvm.Rates{WriteIOPS: 50}}
	must(t, n.ApplyLimits(t.Context(), testID))
	for _, cgroup := range []string{cgroupOne, cgroupTwo} {
		n.expectLimits(cgroup, "253:3 rbps=max wbps=max riops=max wiops=50")
	}
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.tree.Remove(cgroupTwo)) // the pod has just ended
	must(t, n.ApplyLimits(t.Context(), testID))
	n.expectLimits(cgroupOne)
	release, err := n.locks.lockShared(testID.String())
	must(t, err)
	if err := n.ApplyLimits(t.Context(), testID); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("during another operation: %v", err)
	}
	release()
	n.fake.active = false
	must(t, n.ApplyLimits(t.Context(), testID))
	if err := n.fake.server().ApplyLimits(t.Context(), testID); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("without the switch: %v", err)
	}
}

// TestCheckLimits: after a restart, or when another program took the io controller away, the limits are set again; limits that the record
// does not have any more are removed; what is right is not written.
func TestCheckLimits(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.publishAt(pathOf(podOne)))
	for what, change := range map[string]func() error{
		"the controller was taken away": func() error { return n.tree.TakeAway("kubepods") },
		"another program wrote": func() error {
			return n.tree.Write(filepath.Join(n.tree.Dir, cgroupOne, "io.max"), "253:3 rbps=4096 wbps=max riops=max wiops=max")
		},
		"killed while lifted": func() error { _, err := n.LiftLimits(t.Context(), testID); return err },
	} {
		must(t, change())
		n.restart()
		must(t, n.CheckLimits(t.Context()))
		if got := n.tree.Max(cgroupOne); !slices.Equal(got, []string{limitsOfDevice}) {
			t.Errorf("%s: %q", what, got)
		}
	}
	n.tree.Writes()
	must(t, n.CheckLimits(t.Context()))
	if writes := n.tree.Writes(); len(writes) > 0 {
		t.Errorf("writes %q", writes)
	}
	n.restart()
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.CheckLimits(t.Context()))
	n.expectLimits(cgroupOne)
}

// TestLiftedDuringCopy: while a volume is copied it has no limits and its dirty data is on the disks; afterwards it has them, those that it has
// then.
func TestLiftedDuringCopy(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.publishAt(pathOf(podOne)))
	n.fake.did = nil
	end, err := n.PrepareCopy(t.Context(), testID)
	must(t, err)
	n.fake.expect(t, "sync /staging")
	n.expectLimits(cgroupOne)
	must(t, n.CheckLimits(t.Context()))
	n.expectLimits(cgroupOne)
	n.fake.volume.Limits = lvm.Limits{Fixed: lvm.Rates{WriteIOPS: 50}}
	must(t, n.ApplyLimits(t.Context(), testID))
	n.expectLimits(cgroupOne)
	end()
	n.expectLimits(cgroupOne, "253:3 rbps=max wbps=max riops=max wiops=50")
	n.fake.fail = "sync"
	if _, err := n.LiftLimits(t.Context(), testID); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("kind %d: %v", lvm.KindOf(err), err)
	}
	n.expectLimits(cgroupOne, "253:3 rbps=max wbps=max riops=max wiops=50")
	n.fake.fail, n.fake.did = "", nil
	synctest.Test(t, func(t *testing.T) { // a pod starts or ends at that moment
		end, err := n.LiftLimits(t.Context(), testID)
		must(t, err)
		release, err := n.locks.lockShared(testID.String())
		must(t, err)
		end()
		n.expectLimits(cgroupOne)
		release()
		time.Sleep(time.Second)
		n.expectLimits(cgroupOne, "253:3 rbps=max wbps=max riops=max wiops=50")
	})
	n.fake.did = nil
	n.fake.volume.Limits = lvm.Limits{}
	end, err = n.LiftLimits(t.Context(), testID)
	must(t, err)
	end()
	n.fake.active = false
	_, err = n.LiftLimits(context.Background(), testID)
	must(t, err)
	n.fake.expect(t)
}

// TestLiftedDuringExpansion: cryptsetup suspends the mapping of an encrypted volume, which has no limits meanwhile, and has them again afterwards,
// also if the expansion fails.
func TestLiftedDuringExpansion(t *testing.T) {
	n := newLimitedNode(t)
	delete(n.fake.mounts, "/staging")
	n.fake.luks.class, n.fake.luks.open = lvm.Class{Encryption: lvm.EncryptionLUKS2}, true
	raw, limits := "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/"+podOne, strings.Replace(limitsOfDevice, ":3", ":7", 1)
	_, err := n.NodePublishVolume(t.Context(), request(target(raw), rawBlock, attribute(api.AttributeEncryption, "luks2")))
	must(t, err)
	n.expectLimits(cgroupOne, limits)
	expand := func() error {
		_, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: testID.String(), VolumePath: raw})
		return err
	}
	n.fake.during = func(call string) {
		if strings.HasPrefix(call, "expand ") {
			n.expectLimits(cgroupOne)
		}
	}
	must(t, expand())
	n.expectLimits(cgroupOne, limits)
	n.fake.fail = "expand"
	if err := expand(); err == nil {
		t.Error("an expansion that fails has no error")
	}
	n.expectLimits(cgroupOne, limits)
}

// TestPublishReadsNoRecord: NodePublishVolume reads no record from the first check or publication on, until the record may have changed.
func TestPublishReadsNoRecord(t *testing.T) {
	n := newLimitedNode(t)
	publish := func(want int, limits ...string) {
		t.Helper()
		n.fake.lookups = 0
		must(t, n.publishAt(pathOf(podOne)))
		if n.fake.lookups != want {
			t.Errorf("%d readings of the record, want %d", n.fake.lookups, want)
		}
		n.expectLimits(cgroupOne, limits...)
		must(t, n.unpublishAt(pathOf(podOne)))
	}
	publish(1, limitsOfDevice) // a driver that has just started does not know yet
	publish(0, limitsOfDevice)
	n.restart()
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.CheckLimits(t.Context()))
	publish(0)

	n.fake.volume.Limits = limited
	release, err := n.locks.lockShared(testID.String()) // a pod starts while the record changes
	must(t, err)
	if err := n.ApplyLimits(t.Context(), testID); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("kind %d: %v", lvm.KindOf(err), err)
	}
	release()
	n.limits.note(n.limits.changesNow()-1, false, lvm.Volume{ID: testID, UUID: "uuid"}) // a reading from before the change
	n.limits.note(n.limits.changesNow()-1, true, lvm.Volume{ID: testID, UUID: "uuid"})
	publish(1, limitsOfDevice)
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.ApplyLimits(t.Context(), testID))
	publish(0)
	note := n.ReadLimits()
	must(t, n.ApplyLimits(t.Context(), testID))
	note(lvm.Volume{ID: testID, UUID: "uuid", Limits: limited}) // the volume was created before the change
	publish(0)
	n.ReadLimits()(lvm.Volume{ID: testID, UUID: "another", Limits: limited}) // an earlier volume with the same handle
	publish(1)
	must(t, n.CheckLimits(t.Context()))
	if n.limits.note(n.limits.changesNow(), true); len(n.limits.known) > 0 {
		t.Errorf("the limits of volumes that do not exist any more are remembered: %v", n.limits.known)
	}
}

// TestPublishWithoutClass: NodePublishVolume of a volume without limits does what it does in a driver that limits nothing, to the number of
// allocations: each file that it reads or checks would be one more. The runtime's own allocations count, too, so that the least of some counts is compared.
func TestPublishWithoutClass(t *testing.T) {
	n := newLimitedNode(t)
	n.fake.volume.Limits = lvm.Limits{}
	must(t, n.CheckLimits(t.Context()))
	allocations := func(s *Server) float64 {
		must(t, errors.Join((&limitedNode{s, t, n.fake, n.tree}).publishAt(pathOf(podOne))))
		r := request(target(pathOf(podOne)))
		least := math.Inf(1)
		for range 100 {
			least = min(least, testing.AllocsPerRun(1, func() {
				if _, err := s.NodePublishVolume(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}))
		}
		return least
	}
	n.fake.lookups = 0
	without, with := allocations(n.fake.server()), allocations(n.Server)
	if with != without || n.fake.lookups > 0 {
		t.Errorf("%.0f allocations and %d readings of the record, and %.0f allocations in a driver without limits", with, n.fake.lookups, without)
	}
	n.fake.volume.Limits = limited
	must(t, n.ApplyLimits(t.Context(), testID))
	if limits := allocations(n.Server); limits <= with {
		t.Errorf("with limits %.0f allocations, without %.0f: they do not show the files that are read", limits, with)
	}
}

// TestLimitsOfPublicationThatFailed: a publication that is refused sets no limits. Those that one has set before it failed are removed with the
// class, so that the next one finds none.
func TestLimitsOfPublicationThatFailed(t *testing.T) {
	n := newLimitedNode(t)
	n.fake.kinds[pathOf(podOne)] = mount.PathNonEmptyDir
	if err := n.publishAt(pathOf(podOne)); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("kind %d: %v", lvm.KindOf(err), err)
	}
	if writes := n.tree.Writes(); len(writes) > 0 {
		t.Errorf("writes %q", writes)
	}
	delete(n.fake.kinds, pathOf(podOne))
	n.fake.fail = "bind"
	if err := n.publishAt(pathOf(podOne)); err == nil {
		t.Error("a publication that fails has no error")
	}
	n.expectLimits(cgroupOne, limitsOfDevice)
	n.fake.fail, n.fake.volume.Limits = "", lvm.Limits{}
	must(t, n.ApplyLimits(t.Context(), testID))
	must(t, n.publishAt(pathOf(podOne)))
	n.expectLimits(cgroupOne)

	must(t, n.tree.Write(filepath.Join(n.tree.Dir, cgroupTwo, "io.max"), limitsOfDevice)) // a driver that was killed has forgotten that one
	n.restart()
	must(t, n.CheckLimits(t.Context()))
	must(t, n.publishAt(pathOf(podTwo)))
	must(t, n.CheckLimits(t.Context()))
	n.expectLimits(cgroupTwo)
}

// TestLiftedDuringGroupSnapshot: the limits are lifted before the data is written, whatever the file system, and until the last of two
// preparations ends. One that fails leaves them set.
func TestLiftedDuringGroupSnapshot(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.publishAt(pathOf(podOne)))
	n.fake.did = nil
	n.fake.during = func(call string) {
		if call == "sync /staging" {
			n.expectLimits(cgroupOne)
		}
	}
	end, err := n.PrepareGroupCopy(t.Context(), testID)
	must(t, err)
	n.fake.expect(t, "sync /staging", "sync /staging")
	again, err := n.PrepareGroupCopy(t.Context(), testID)
	must(t, err)
	again()
	n.expectLimits(cgroupOne)
	end()
	n.expectLimits(cgroupOne, limitsOfDevice)
	n.fake.during, n.fake.fail = nil, "sync"
	if _, err := n.PrepareGroupCopy(t.Context(), testID); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("kind %d: %v", lvm.KindOf(err), err)
	}
	n.expectLimits(cgroupOne, limitsOfDevice)
}

// TestIO: a volume has what the kernel counted of its device, and its limits. A driver without limits reads nothing.
func TestIO(t *testing.T) {
	n := newLimitedNode(t)
	n.statistics = func() (map[uint64]iolimit.Statistics, error) {
		return map[uint64]iolimit.Statistics{
			uint64(ourDevice):   {Reads: 1, ReadBytes: 4096, ReadTime: time.Second, Writes: 2, WriteBytes: 8192, WriteTime: 3 * time.Second},
			uint64(otherDevice): {Reads: 9},
		}, nil
	}
	want := report.IO{Reads: 1, ReadBytes: 4096, ReadSeconds: 1, Writes: 2, WrittenBytes: 8192, WriteSeconds: 3, ReadIOPSLimit: 100, WriteBandwidthLimit: lvm.MiB}
	if got, err := n.IO(t.Context()); err != nil || len(got) != 1 || got[testID] != want {
		t.Errorf("%+v, %v", got, err)
	}
	n.fake.active = false
	if got, err := n.IO(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without a device: %+v, %v", got, err)
	}
	n.fake.active = true
	without := n.fake.server()
	without.statistics = nil
	if got, err := without.IO(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without limits: %+v, %v", got, err)
	}
}

// TestLimitsEndWithTheVolume: what limits remained are removed before the file system is unmounted.
func TestLimitsEndWithTheVolume(t *testing.T) {
	n := newLimitedNode(t)
	must(t, n.publishAt(pathOf(podOne)))
	delete(n.fake.mounts, pathOf(podOne)) // an admin unmounted it
	n.fake.during = func(call string) {
		if call == "unmount /staging" {
			n.expectLimits(cgroupOne)
		}
	}
	_, err := n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: testID.String(), StagingTargetPath: "/staging"})
	must(t, err)
	n.expectLimits(cgroupOne)
}
