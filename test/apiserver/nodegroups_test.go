//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/nodegroup"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/cluster"
)

// The class of each layout, and what a new node has for it: two are declared, one is learned from the group's empty node.
var groupClasses = map[string]string{"group-linear": "100Gi", "group-raid1": "50Gi", "group-thin": "70Gi"}

const groupValues = `
controller:
  enabled: true
autoscaler:
  nodeGroups:
    - name: nvme
      labels: {pool: nvme}
      capacity: {group-linear: 100Gi, group-raid1: 50Gi}
`

// TestCapacityOfFutureNodes: Kubernetes' scheduler selects a node with the labels of cluster-autoscaler's template exactly for those
// claims that a new node of the group has room for. Without the objects of nodelvm-controller it selects it for none. The
// objects go with their class, and with the last group.
func TestCapacityOfFutureNodes(t *testing.T) {
	dir := t.TempDir()
	startControllers(t, dir)
	templateNode(t)
	for class := range groupClasses {
		newClass(t, class, map[string]string{"volumeGroup": "vg", "layout": strings.TrimPrefix(class, "group-")})
	}
	pod := newGroupPod(t, "before", "group-linear", "1Gi")
	soon(t, "no capacity is known", func() bool { return isRefused(t, pod) })

	emptyNode(t)
	publisher := startControllerOf(t, dir, groupValues)
	soon(t, "the pod fits as soon as there is a capacity", func() bool { return selectedNode(t, pod) == "template" })
	for class, size := range groupClasses {
		soonLearned(t, class, size)
		fits := newGroupPod(t, "fits-"+class, class, size)
		tooLarge := resource.MustParse(size)
		tooLarge.Add(resource.MustParse("1Gi"))
		never := newGroupPod(t, "never-"+class, class, tooLarge.String())
		soon(t, "a claim of "+size+" fits", func() bool { return selectedNode(t, fits) == "template" })
		soon(t, "a larger claim does not fit", func() bool { return isRefused(t, never) })
		if node := selectedNode(t, never); node != "" {
			t.Errorf("class %s: node %s is selected for a claim of %s", class, node, tooLarge.String())
		}
	}

	must(t, admin.StorageV1().StorageClasses().Delete(t.Context(), "group-raid1", metav1.DeleteOptions{}))
	soon(t, "the object of a deleted class is gone", func() bool { return templateOf(t, "group-raid1") == nil })
	for _, class := range []string{"group-linear", "group-thin"} {
		if templateOf(t, class) == nil {
			t.Errorf("the object of class %s is gone, too", class)
		}
	}

	publisher.stop()
	startControllerOf(t, dir, "controller: {enabled: true}")
	for _, class := range []string{"group-linear", "group-thin"} {
		soon(t, "the object of a deleted group is gone", func() bool { return templateOf(t, class) == nil })
	}
}

// startControllers runs the scheduler and the garbage collector until the test ends.
func startControllers(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "admin")
	writeKubeconfig(t, path, server, adminPass)
	common := []string{"--kubeconfig=" + path, "--leader-elect=false", "--secure-port=0", "--profiling=false"}
	for name, args := range map[string][]string{"kube-scheduler": nil, "kube-controller-manager": {"--controllers=garbage-collector-controller"}} {
		stop, err := start(dir, sidecars[name], append(args, common...)...)
		must(t, err)
		t.Cleanup(stop)
	}
	makeAccount(t, namespace(t))
}

// templateNode makes the node that cluster-autoscaler would show to the scheduler's code.
func templateNode(t *testing.T) {
	t.Helper()
	makeNode(t, "template", map[string]string{"pool": "nvme", api.LabelTemplateNode: "true"})
}

// emptyNode makes a node of the group that has no volume, and the capacity that csi-provisioner publishes for it.
func emptyNode(t *testing.T) {
	t.Helper()
	makeNode(t, "empty", map[string]string{"pool": "nvme", topology: "empty"})
	publishCapacity(t, "empty", "group-thin", groupClasses["group-thin"])
}

// newGroupPod makes a pod with a claim that can run on the template's node alone.
func newGroupPod(t *testing.T, name, class, size string) string {
	t.Helper()
	newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = &class
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	})
	pod := podWithClaim(name)
	pod.Spec.NodeSelector = map[string]string{api.LabelTemplateNode: "true"}
	_, err := admin.CoreV1().Pods(namespace(t)).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	space, now := namespace(t), int64(0)
	t.Cleanup(func() {
		ctx := context.Background()
		must(t, admin.CoreV1().Pods(space).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		_, err := admin.CoreV1().PersistentVolumeClaims(space).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		must(t, err)
		must(t, admin.CoreV1().PersistentVolumeClaims(space).Delete(ctx, name, metav1.DeleteOptions{}))
	})
	return name
}

// podWithClaim is a pod that mounts the claim of its name.
func podWithClaim(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "c", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}},
	}}
}

// selectedNode is the node that the scheduler has selected for the claim of a pod.
func selectedNode(t *testing.T, name string) string {
	t.Helper()
	claim, err := admin.CoreV1().PersistentVolumeClaims(namespace(t)).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return claim.Annotations[selected]
}

// isRefused tells whether the scheduler has found no room for the pod's claim.
func isRefused(t *testing.T, name string) bool {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace(t)).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return strings.Contains(c.Message, "did not have enough free storage")
		}
	}
	return false
}

// templateOf is the object of the node group for a class; nil: there is none.
func templateOf(t *testing.T, class string) *storagev1.CSIStorageCapacity {
	t.Helper()
	list, err := admin.StorageV1().CSIStorageCapacities(system).List(t.Context(), metav1.ListOptions{LabelSelector: api.LabelNodeGroup + "=nvme"})
	must(t, err)
	for i := range list.Items {
		if list.Items[i].StorageClassName == class {
			return &list.Items[i]
		}
	}
	return nil
}

// soonLearned waits for the capacity of a class. A learned one waits until the empty node's has not changed for half a minute.
func soonLearned(t *testing.T, class, size string) {
	t.Helper()
	wait.For(t, 2*time.Minute, "there is a capacity for "+class, func() bool { return templateOf(t, class) != nil })
	want := resource.MustParse(size)
	if o := templateOf(t, class); o == nil || o.Capacity == nil || o.Capacity.Cmp(want) != 0 || o.MaximumVolumeSize == nil || o.MaximumVolumeSize.Cmp(want) != 0 {
		t.Fatalf("class %s: got %+v, want %s", class, o, size)
	}
}

// startControllerOf runs nodelvm-controller with the chart's rights and file for the node groups in the values.
func startControllerOf(t *testing.T, dir, chartValues string) *runningController {
	t.Helper()
	values := filepath.Join(dir, "values.yaml")
	must(t, os.WriteFile(values, []byte(chartValues), 0o600))
	helm, err := cluster.HelmPath()
	must(t, err)
	args := []string{"template", "nodelvm", "../../deploy/chart/nodelvm", "--namespace", system, "--values", values, "--kube-version", "1.32", "--show-only", "templates/controller.yaml"}
	if strings.Contains(chartValues, "nodeGroups") { // helm refuses to show a template without content
		args = append(args, "--show-only", "templates/nodegroups.yaml")
	}
	objects, err := exec.CommandContext(t.Context(), helm, args...).Output()
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	var rights []byte
	var file corev1.ConfigMap
	for object := range bytes.SplitSeq(objects, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		must(t, yaml.Unmarshal(object, &kind))
		switch kind.Kind {
		case "ClusterRole", "Role":
			rights = append(append(rights, "\n---\n"...), object...)
		case "ConfigMap":
			must(t, yaml.UnmarshalStrict(object, &file))
		}
	}
	runKubectl(t, rights, "replace", "-f", "-")
	if file.Name == "" { // the chart gives nodelvm-controller no file
		return startPublisher(t, nil)
	}
	path := filepath.Join(dir, "groups")
	must(t, os.WriteFile(path, []byte(file.Data["node-groups.yaml"]), 0o600))
	groups, err := nodegroup.Read(path)
	must(t, err)
	return startPublisher(t, groups)
}

// runKubectl runs kubectl as the cluster's admin.
func runKubectl(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--server=" + server, "--token=" + adminPass, "--insecure-skip-tls-verify"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", args[0], err, out)
	}
}

func startPublisher(t *testing.T, groups []nodegroup.Group) *runningController {
	t.Helper()
	return startController(t, "publisher", func(k *clients) part {
		return (&nodegroup.Publisher{Clientset: k.clientset, Namespace: system, Groups: groups, Log: k.log}).Run
	})
}
