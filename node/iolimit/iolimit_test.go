package iolimit

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/node/iolimit/iolimittest"
)

const (
	pod   = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c001"
	other = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c002"
	own   = "0f6d1a52-7a3e-4a39-9f2b-93d0a7f0c00d"
)

var (
	disk  = unix.Mkdev(253, 4)
	slow  = lvm.Rates{ReadIOPS: 100, WriteBandwidth: lvm.MiB}
	slowC = "253:4 rbps=max wbps=1048576 riops=100 wiops=max"
)

func underscored(uid string) string { return strings.ReplaceAll(uid, "-", "_") }

// layouts are where a kubelet makes the cgroup of a pod, with each cgroup driver, quality of service and kind of root.
var layouts = map[string]string{
	"cgroupfs, burstable":            "kubepods/burstable/pod" + pod,
	"cgroupfs, guaranteed":           "kubepods/pod" + pod,
	"cgroupfs, best effort":          "kubepods/besteffort/pod" + pod,
	"cgroupfs, another root":         "k8s/nodes/kubepods/burstable/pod" + pod,
	"systemd, burstable":             "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored(pod) + ".slice",
	"systemd, guaranteed":            "kubepods.slice/kubepods-pod" + underscored(pod) + ".slice",
	"systemd, best effort":           "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored(pod) + ".slice",
	"systemd, a kubelet in a node":   "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + underscored(pod) + ".slice",
	"systemd, a node in a container": "docker.slice/docker-0a1b.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + underscored(pod) + ".slice",
}

func newTree(t *testing.T, cgroups ...string) *iolimittest.Tree {
	t.Helper()
	tree, err := iolimittest.New(t.TempDir())
	for _, name := range cgroups {
		if err == nil {
			err = tree.Make(name)
		}
	}
	must(t, err)
	return tree
}

func limiter(tree *iolimittest.Tree, own string) *Limiter {
	return New(Config{Dir: tree.Dir, OwnPod: own, Write: tree.Write})
}

// TestLayouts: the limit goes to the pod's cgroup, and nothing else changes but the io controller on the way.
func TestLayouts(t *testing.T) {
	for name, cgroup := range layouts {
		t.Run(name, func(t *testing.T) {
			neighbour := strings.NewReplacer(pod, other, underscored(pod), underscored(other)).Replace(cgroup)
			tree := newTree(t, "system.slice/ssh.service", "user.slice", neighbour, cgroup)
			l := limiter(tree, "")
			must(t, l.Set(pod, disk, slow))
			if got := tree.Max(cgroup); !slices.Equal(got, []string{slowC}) {
				t.Errorf("io.max: %q", got)
			}
			if got := tree.Max(neighbour); len(got) != 0 {
				t.Errorf("another pod's io.max: %q", got)
			}
			writes := tree.Writes()
			for _, w := range writes[:len(writes)-1] {
				if dir, isEnabled := strings.CutSuffix(w, "cgroup.subtree_control: +io"); !isEnabled || !strings.HasPrefix(cgroup+"/", dir) {
					t.Errorf("write %q", w)
				}
			}
			if err := l.Set(pod, disk, slow); err != nil || len(tree.Writes()) != 0 {
				t.Errorf("the same limits again are written again, or %v", err)
			}
			if err := l.Set(pod, disk, lvm.Rates{}); err != nil || len(tree.Max(cgroup)) != 0 {
				t.Errorf("removed: %v, %q", err, tree.Max(cgroup))
			}
		})
	}
}

// TestPodOf: the UID is from the path's own folders, and no other path has one.
func TestPodOf(t *testing.T) {
	const kubelet = "/var/lib/kubelet"
	for path, want := range map[string]string{
		kubelet + "/pods/" + pod + "/volumes/kubernetes.io~csi/pvc-1/mount":                     pod,
		"/data/k/pods/" + pod + "/volumes/kubernetes.io~csi/pvc-1/mount":                        pod,
		kubelet + "/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/" + pod:               pod,
		kubelet + "/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1":                      "",
		kubelet + "/plugins/kubernetes.io/csi/nodelvm.io/9f/globalmount":                        "",
		kubelet + "/pods/" + pod + "/volume-subpaths/pvc-1/c/0":                                 "",
		kubelet + "/pods/../volumes/kubernetes.io~csi/pvc-1/mount":                              "",
		kubelet + "/pods//volumes/kubernetes.io~csi/pvc-1/mount":                                "",
		kubelet + "/pods/" + strings.Repeat("a", 65) + "/volumes/kubernetes.io~csi/pvc-1/mount": "",
		"mount": "", "": "", "/": "",
	} {
		if got := PodOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestOwnPodShowsTheRoot: what another program calls kubepods, and a pod makes in its own cgroup, is not where pods are.
func TestOwnPodShowsTheRoot(t *testing.T) {
	real := "z/kubepods/burstable/pod" + pod
	tree := newTree(t, "a/kubepods/burstable/pod"+pod, real, "z/kubepods/pod"+own, "z/kubepods/pod"+other+"/kubepods/pod"+pod)
	l := limiter(tree, own)
	must(t, l.Set(pod, disk, slow))
	if got := tree.Max(real); !slices.Equal(got, []string{slowC}) {
		t.Errorf("io.max: %q", got)
	}
	for _, w := range tree.Writes() {
		if strings.HasPrefix(w, "a/") || strings.Contains(w, other) {
			t.Errorf("write %q", w)
		}
	}
	if err := limiter(newTree(t, "a/kubepods/pod"+pod), own).Check(); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), own) {
		t.Errorf("without the own pod: %v", err)
	}
	if err := tree.Remove("z"); err != nil { // a kubelet starts with another root
		t.Fatal(err)
	}
	must(t, tree.Make("b/kubepods/pod"+own))
	if err := l.Check(); err != nil {
		t.Error(err)
	}
}

// TestInfeasible: a node that cannot limit I/O gets an error that names the cgroup, and no other file changes.
func TestInfeasible(t *testing.T) {
	const cgroup = "kubepods/burstable/pod" + pod
	for name, test := range map[string]struct {
		prepare func(*iolimittest.Tree) error
		want    string
	}{
		"cgroup v1":     {func(tree *iolimittest.Tree) error { return os.Remove(filepath.Join(tree.Dir, "cgroup.controllers")) }, "cgroup v2"},
		"no pods":       {func(tree *iolimittest.Tree) error { return tree.Remove("kubepods") }, "cgroupsPerQOS"},
		"no controller": {func(tree *iolimittest.Tree) error { return tree.Withhold() }, "the cgroup / of this node does not have the io controller"},
		"a process in a parent of the pods": {func(tree *iolimittest.Tree) error {
			return os.WriteFile(filepath.Join(tree.Dir, "kubepods/cgroup.procs"), []byte("7\n"), 0o600)
		}, "the cgroup /kubepods of this node"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, cgroup)
			must(t, test.prepare(tree))
			l := limiter(tree, "")
			for what, err := range map[string]error{"check": l.Check(), "set": l.Set(pod, disk, slow)} {
				if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: kind %d, %v", what, lvm.KindOf(err), err)
				}
			}
			if err := l.Set(pod, disk, lvm.Rates{}); err != nil && name != "cgroup v1" && name != "no pods" {
				t.Errorf("nothing to remove: %v", err)
			}
			if left := tree.Max(cgroup); len(left) == 1 && strings.HasPrefix(left[0], "253:") {
				t.Errorf("io.max: %q", left)
			}
		})
	}
}

// TestGone: a pod without a cgroup, and a device that is gone, are lvm.KindNotFound; nothing is created.
func TestGone(t *testing.T) {
	tree := newTree(t, "kubepods/burstable/pod"+pod)
	l := limiter(tree, "")
	if err := l.Set(other, disk, slow); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("no cgroup: %v", err)
	}
	if err := l.Set(other, disk, lvm.Rates{}); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("no cgroup, nothing to remove: %v", err)
	}
	tree.LoseDevice("253:4")
	if err := l.Set(pod, disk, slow); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("no device: %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(tree.Dir, "kubepods/burstable"))
	if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), other) }) {
		t.Errorf("%v, %v", entries, err)
	}
	if err := writeOnce(filepath.Join(tree.Dir, "new"), "x"); !os.IsNotExist(err) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// TestForeignLines: the lines of other devices, and other cgroups, stay as they are.
func TestForeignLines(t *testing.T) {
	const cgroup, container = "kubepods/burstable/pod" + pod, "kubepods/burstable/pod" + pod + "/c1"
	tree := newTree(t, container)
	l := limiter(tree, "")
	must(t, l.Set(pod, disk, slow))
	foreign := "8:16 rbps=4096 wbps=max riops=max wiops=max"
	must(t, tree.Write(filepath.Join(tree.Dir, cgroup, "io.max"), foreign))
	for _, r := range []lvm.Rates{{WriteIOPS: 50}, {}} {
		must(t, l.Set(pod, disk, r))
		if lines := tree.Max(cgroup); !slices.Contains(lines, foreign) {
			t.Errorf("lines: %q", lines)
		}
	}
	for _, w := range tree.Writes() {
		if strings.Contains(w, "/c1/") {
			t.Errorf("write %q", w)
		}
	}
}

// TestStolenController: when another program takes the io controller away, the next Set brings back it and the limit.
func TestStolenController(t *testing.T) {
	const cgroup = "kubepods/burstable/pod" + pod
	tree := newTree(t, cgroup)
	l := limiter(tree, "")
	for range 2 {
		must(t, l.Set(pod, disk, slow))
		if got := tree.Max(cgroup); !slices.Equal(got, []string{slowC}) {
			t.Errorf("io.max: %q", got)
		}
		must(t, tree.TakeAway("kubepods"))
		if now, err := l.LimitsOf(pod); err != nil || len(now) != 0 {
			t.Errorf("limits: %v, %v", now, err)
		}
	}
}

// TestLift: a lifted device has no limits until the last end, in any cgroup that this process knows or its caller names.
func TestLift(t *testing.T) {
	const first, second = "kubepods/burstable/pod" + pod, "kubepods/pod" + other
	tree := newTree(t, first, second)
	l := limiter(tree, "")
	set := func() {
		t.Helper()
		for _, p := range []string{pod, other} {
			must(t, l.Set(p, disk, slow))
		}
	}
	limited := func(want int) {
		t.Helper()
		if got := len(tree.Max(first)) + len(tree.Max(second)); got != want {
			t.Errorf("%d limits, want %d", got, want)
		}
	}
	set()
	end, again := l.Lift(disk, nil), l.Lift(disk, []string{pod})
	limited(0)
	set()
	end()
	end()
	set()
	limited(0)
	again()
	limited(0)
	set()
	limited(2)
	restarted := limiter(tree, "") // a new process knows only those of its caller
	restarted.Lift(disk, []string{pod})()
	limited(1)
	l.Release(disk)
	limited(0)
}

// TestUnresponsiveKernel: a write that does not end fails in time, and costs one goroutine.
func TestUnresponsiveKernel(t *testing.T) {
	tree := newTree(t, "kubepods/burstable/pod"+pod)
	must(t, limiter(tree, "").Check())
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var hangs atomic.Int32
		tree.During(func(string, string) { hangs.Add(1); <-release })
		l := limiter(tree, "")
		for range 3 {
			if err := l.Set(pod, disk, slow); lvm.KindOf(err) != lvm.KindBusy {
				t.Errorf("kind %d: %v", lvm.KindOf(err), err)
			}
		}
		if hangs.Load() != 1 {
			t.Errorf("%d writes", hangs.Load())
		}
		close(release)
		synctest.Wait()
		if err := l.Set(pod, disk, lvm.Rates{WriteIOPS: 20}); err != nil {
			t.Error(err)
		}
	})
}

// TestWait: a cgroup that appears in time is found; without one the caller gets lvm.KindBusy.
func TestWait(t *testing.T) {
	tree := newTree(t, "kubepods/burstable")
	synctest.Test(t, func(t *testing.T) {
		l := limiter(tree, "")
		if err := l.Wait(t.Context(), pod, time.Second); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), pod) {
			t.Errorf("kind %d: %v", lvm.KindOf(err), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Wait(ctx, pod, time.Hour); lvm.KindOf(err) != lvm.KindBusy {
			t.Errorf("cancelled: %v", err)
		}
		go func() {
			time.Sleep(300 * time.Millisecond)
			if err := tree.Make("kubepods/burstable/pod" + pod); err != nil {
				t.Error(err)
			}
		}()
		if err := l.Wait(t.Context(), pod, time.Second); err != nil {
			t.Error(err)
		}
	})
}

// TestLines: a line sets all four limits, and what the kernel prints is understood.
func TestLines(t *testing.T) {
	for text, r := range map[string]lvm.Rates{
		"253:4 rbps=max wbps=max riops=max wiops=max":                         {},
		"253:4 rbps=65536 wbps=9223372036854775807 riops=10 wiops=4294967294": {ReadBandwidth: 65536, WriteBandwidth: math.MaxInt64, ReadIOPS: 10, WriteIOPS: 4294967294},
	} {
		if got := line(disk, r); got != text {
			t.Errorf("%+v: %q", r, got)
		}
		if got := parseMax("\nx\n8:0 \n" + text + "\n"); got[disk] != r || len(got) != 2 {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if got := parseMax("253:4 rbps=18446744073709551614 wbps=max riops=x"); got[disk] != (lvm.Rates{ReadBandwidth: math.MaxInt64}) {
		t.Errorf("%+v", got)
	}
	if got := line(unix.Mkdev(8, 1<<19), lvm.Rates{}); !strings.HasPrefix(got, "8:524288 ") {
		t.Errorf("%q", got)
	}
}

func TestStatistics(t *testing.T) {
	const text = ` 253       4 dm-4 10 0 80 1500 20 0 4096 2500 0 12 4000 1 0 8 2 3 4
   8       0 sda 1 2 3 4 5 6 7 8 9 10 11
   7       0 loop0
   8       x sdb 1 2 3 4 5 6 7 8 9 10 11
`
	got := parseStatistics(text)
	want := Statistics{Reads: 10, ReadBytes: 40960, ReadTime: 1500 * time.Millisecond, Writes: 20, WriteBytes: 2 * lvm.MiB, WriteTime: 2500 * time.Millisecond}
	if got[disk] != want || len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

var must = check.Must
