//go:build e2e

package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// placedLayout is what three nodes publish for a layout, and the size of the claims, in MiB. The nodes have two disks each, of 4, of 6, and of 8 and 16 GiB,
// as the lab's.
type placedLayout struct {
	name     string
	capacity []int64
	claim    int64
}

func placedLayouts() []placedLayout {
	return []placedLayout{
		{"linear", []int64{8184, 12280, 24568}, 1024},
		{"striped", []int64{8184, 12280, 16376}, 1024},
		{"raid1", []int64{4084, 6132, 8180}, 512},
		{"thin", []int64{8176, 12264, 24544}, 1024},
	}
}

// placer is a profile of a scheduler, and its score of a node of whose capacity a claim takes so many percent; nil: any node is right.
type placer struct {
	name  string
	score func(percent int64) int64
}

// scoringSince is the minor version of Kubernetes whose scheduler scores nodes by capacity by default (KEP-4049).
const scoringSince = 37

// TestWhichNodesClaimsGet creates ten claims one after the other, of pods that nothing else distinguishes, on nodes of different sizes. Each must get
// the node that docs/howto/placement.md says, with the default scheduler and with the configurations of that page. Before Kubernetes 1.37 a claim gets any node
// with enough capacity.
func TestWhichNodesClaimsGet(t *testing.T) {
	dir := t.TempDir()
	startControllers(t, dir)
	placers := []placer{{"default-scheduler", nil}}
	if minorVersion(t) >= scoringSince {
		startConfiguredScheduler(t)
		placers = []placer{
			{"default-scheduler", func(percent int64) int64 { return 100 - percent }},
			{"pack", func(percent int64) int64 { return percent }},
			{"ignore", nil},
		}
	}
	nodes := []string{"placed-small", "placed-middle", "placed-large"}
	for _, node := range nodes {
		makeNode(t, node, map[string]string{topology: node})
	}
	for _, layout := range placedLayouts() {
		for _, by := range placers {
			t.Run(layout.name+"-"+by.name, func(t *testing.T) {
				makeAccount(t, namespace(t))
				t.Logf("%s of %v MiB on each node, of %v MiB: %v claims", layout.name, layout.claim, layout.capacity, placeClaims(t, layout, by, nodes))
			})
		}
	}
}

// startConfiguredScheduler runs one more scheduler, with the profiles of docs/howto/placement.md.
func startConfiguredScheduler(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "admin"), filepath.Join(dir, "config")
	writeKubeconfig(t, kubeconfig, server, adminPass)
	text, err := os.ReadFile("testdata/schedulers.yaml")
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "KUBECONFIG", kubeconfig)), 0o600))
	stop, err := start(dir, sidecars["kube-scheduler"], "--config="+file, "--secure-port=0")
	must(t, err)
	t.Cleanup(stop)
}

// placeClaims returns how many of ten claims each node gets. Each claim waits until the capacity that the one before has left is published.
func placeClaims(t *testing.T, layout placedLayout, by placer, nodes []string) []int {
	t.Helper()
	class := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	newClass(t, class, map[string]string{"volumeGroup": "vg", "layout": layout.name})
	left, published, counts := slices.Clone(layout.capacity), make([]string, len(nodes)), make([]int, len(nodes))
	for i, node := range nodes {
		published[i] = publishCapacity(t, node, class, fmt.Sprintf("%dMi", left[i]))
	}
	for n := range 10 {
		name := fmt.Sprintf("claim-%d", n)
		newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = &class
			c.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(layout.claim<<20, resource.BinarySI)
		})
		pod := podWithClaim(name)
		pod.Spec.SchedulerName = by.name
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}
		create(t, admin.CoreV1().Pods(namespace(t)), pod)
		soon(t, "a node is selected for "+name, func() bool { return selectedNode(t, name) != "" })
		at := slices.Index(nodes, selectedNode(t, name))
		checkPlace(t, name, at, left, layout.claim, by.score)
		counts[at]++
		left[at] -= layout.claim
		patch := fmt.Sprintf(`{"capacity": "%[1]dMi", "maximumVolumeSize": "%[1]dMi"}`, left[at])
		_, err := admin.StorageV1().CSIStorageCapacities(system).Patch(t.Context(), published[at], types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
	}
	return counts
}

// checkPlace fails if another node with room for the claim has a better score.
func checkPlace(t *testing.T, name string, at int, left []int64, size int64, score func(int64) int64) {
	t.Helper()
	if at < 0 || left[at] < size {
		t.Fatalf("%s is on node %d, and the nodes have %v MiB", name, at, left)
	}
	if score == nil {
		return
	}
	const tolerance = 2 // points, that the requests of the pods make
	for other := range left {
		if left[other] >= size && score(size*100/left[other]) > score(size*100/left[at])+tolerance {
			t.Errorf("%s is on node %d; node %d has a better score. They have %v MiB", name, at, other, left)
		}
	}
}
