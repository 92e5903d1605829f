//go:build innode

package innode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// forgedCgroups makes cgroups in a container's, as a container may that its runtime lets manage its own: one with the name that the kubelet gives
// to another pod's, and three beside it. It removes the limits of a device wherever the container can write.
func forgedCgroups(t *testing.T, device string) (forged string, all []string) {
	t.Helper()
	own := filepath.Join(cgroupOf(limitedPod), "container")
	forged = filepath.Join(own, "kubepods/burstable/pod"+unknownPod)
	all = []string{forged}
	for i := range 3 {
		all = append(all, filepath.Join(own, fmt.Sprint(i)))
	}
	write := func(file, text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	t.Cleanup(func() {
		for _, dir := range append(all, filepath.Join(own, "kubepods/burstable"), filepath.Join(own, "kubepods")) {
			must(t, os.Remove(dir))
		}
		write(filepath.Join(own, "cgroup.subtree_control"), "-io")
		write(filepath.Join(cgroupOf(limitedPod), "cgroup.subtree_control"), "-io")
	})
	for _, dir := range all {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, dir := range []string{cgroupOf(limitedPod), own, filepath.Join(own, "kubepods"), filepath.Join(own, "kubepods/burstable")} {
		write(filepath.Join(dir, "cgroup.subtree_control"), "+io") // a runtime does the first
	}
	for _, dir := range append(all, own) {
		write(filepath.Join(dir, "io.max"), device+" rbps=max wbps=max riops=max wiops=max")
	}
	return forged, all
}

// TestContainerWithItsOwnCgroups: a container that manages its own cgroups, as many as it likes and named as those of other pods, gets no more than
// its pod's limit together, and takes no other pod's place.
func TestContainerWithItsOwnCgroups(t *testing.T) {
	withIOLimits(t)
	c := connect(t)
	v := c.create(t, createRequest("hostile", 96*mebibyte))
	must(t, c.modify(t, v, "writeBandwidth", "4Mi"))
	target := c.ofPod(t, v, mountCapability("ext4"), nil, limitedPod)
	before := ioMax(t, limitedPod)
	forged, all := forgedCgroups(t, deviceOf(t, target))

	renewDriver(t) // which searches the pods' cgroups again
	c = connect(t)
	other := c.create(t, createRequest("victim", 16*mebibyte))
	must(t, c.modify(t, other, "writeIOPS", "50"))
	c.ofPod(t, other, mountCapability("ext4"), nil, unknownPod)
	if got := ioMax(t, unknownPod); !strings.Contains(got, "wiops=50") {
		t.Errorf("io.max of the other pod is %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(forged, "io.max")); err != nil || len(text) > 0 {
		t.Errorf("io.max of the cgroup with the other pod's name is %q, %v", text, err)
	}
	if got := ioMax(t, limitedPod); got != before || got == "" {
		t.Errorf("io.max is %q, and was %q", got, before)
	}

	const seconds = 3
	writers := ""
	for i, dir := range all {
		writers += fmt.Sprintf("(echo 0 >%s/cgroup.procs; exec dd if=/dev/zero of=%s/%d oflag=direct bs=256k count=%d) & all=\"$all $!\"; ", dir, target, i, seconds*limitedRate/(256<<10)/len(all))
	}
	took := inCgroup(t, cgroups, writers+"for p in $all; do wait $p; done").Seconds()
	t.Logf("%d cgroups together: %.2f of the pod's limit", len(all), seconds/took)
	if took < 0.9*seconds || took > 1.3*seconds {
		t.Errorf("%d writers took %.2f s instead of %d s", len(all), took, seconds)
	}
}
