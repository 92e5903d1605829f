//go:build e2e

package apiserver

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

const pluginNode = "plugin-node"

// plugin is kubectl-nodelvm as a user runs it, on a cluster with one node whose driver is a page.
type plugin struct {
	path  string
	token string
	page  *report.Node
}

// run runs the plugin and answers what it says, and its exit status.
func (p *plugin) run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	writeKubeconfig(t, p.path+".config", server, p.token)
	cmd := exec.CommandContext(t.Context(), p.path, args...)
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+p.path+".config")
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(text), code
}

// compilePlugin compiles the plugin, for a user who may do everything.
func compilePlugin(t *testing.T) *plugin {
	t.Helper()
	p := &plugin{path: filepath.Join(t.TempDir(), "kubectl-nodelvm"), token: adminPass}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", p.path, "./cmd/kubectl-nodelvm")
	build.Dir = "../.."
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return p
}

// newPlugin compiles the plugin and makes its cluster sound: a node with a registered driver that publishes its capacity.
func newPlugin(t *testing.T) *plugin {
	t.Helper()
	p := compilePlugin(t)
	const gib = lvm.Bytes(1 << 30)
	p.page = &report.Node{Node: pluginNode, Version: "v0.0.1", Cluster: "c", Inventory: report.Inventory{
		Groups: []report.Group{{Name: "vg", UUID: "u", Disks: 1, Size: 10 * gib, Free: 9 * gib, MetadataSize: 100, MetadataFree: 90}}},
		Checks: report.Checks{Modules: []report.Module{{Name: "dm-mod", State: report.ModuleLoaded}, {Name: "dm-thin-pool", State: report.ModuleLoaded}},
			Kubelet: report.KubeletDir{Path: "/var/lib/kubelet", Propagation: report.PropagationShared, Used: true}},
	}
	ctx := t.Context()
	set, err := admin.AppsV1().DaemonSets(system).Get(ctx, "nodelvm", metav1.GetOptions{})
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "nodelvm-plugin", Labels: set.Spec.Template.Labels}, Spec: set.DeepCopy().Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.Containers = pluginNode, pod.Spec.Containers[:1]
	serve(t, pod, p.page)
	newKubelet(t, pluginNode)
	create(t, admin.StorageV1().CSINodes(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: pluginNode},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: pluginNode, TopologyKeys: []string{topology}}}}})
	publishCapacities(t)
	pods, err := admin.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}) // doctor explains why the claims of other tests' pods wait
	must(t, err)
	for _, pod := range pods.Items {
		if pod.Namespace != system {
			must(t, admin.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
		}
	}
	left, err := admin.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}) // other tests' nodes are gone: to doctor their volumes are lost
	must(t, err)
	for _, pv := range left.Items {
		dropVolume(t, pv.Name)
	}
	deleteContents(t)
	set.Status.DesiredNumberScheduled = 1
	_, err = admin.AppsV1().DaemonSets(system).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	must(t, err)
	return p
}

// deleteContents deletes what other tests have left: to doctor the snapshots of their nodes are lost.
func deleteContents(t *testing.T) {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	readRaw(t, &list, contents)
	for _, item := range list.Items {
		removeRaw(t, contents, item.Name)
	}
}

// publishCapacities does so for every class of the driver, those that other tests have left among them.
func publishCapacities(t *testing.T) {
	t.Helper()
	classes, err := admin.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, class := range classes.Items {
		if class.Provisioner != driver {
			continue
		}
		c := capacityOf(pluginNode, class.Name, "9Gi")
		c.Name = "csisc-plugin-" + class.Name
		create(t, admin.StorageV1().CSIStorageCapacities(system), c)
	}
}

// forgeDriver runs a pod with the driver's labels in a namespace of a tenant. Its page says that nothing is on the node.
func forgeDriver(t *testing.T) {
	t.Helper()
	makeAccount(t, namespace(t))
	serve(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "a", Labels: map[string]string{
		"app.kubernetes.io/name": "nodelvm", "app.kubernetes.io/component": "node"}},
		Spec: corev1.PodSpec{NodeName: pluginNode, Containers: []corev1.Container{{Name: "nodelvm", Image: "i"}}}}, &report.Node{Node: pluginNode})
}

// serve runs the pod, and answers with the page at the loopback address that a forwarded port ends at.
func serve(t *testing.T, pod *corev1.Pod, content *report.Node) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	http := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := *content
		for _, query := range r.URL.Query()["class"] {
			name, parameters, err := report.ParseClass(query)
			if r.URL.Path != report.Path || err != nil {
				http.Error(w, r.URL.String(), http.StatusBadRequest)
				return
			}
			class := report.Class{Name: name}
			if parameters["volumeGroup"] == "vg" {
				class.Offers = []report.Offer{{Group: "vg", Available: page.Groups[0].Free, Largest: page.Groups[0].Free}}
			}
			page.Classes = append(page.Classes, class)
		}
		_ = json.NewEncoder(w).Encode(page)
	})}
	go func() { _ = http.Serve(listener) }()
	t.Cleanup(func() { _ = http.Close() })
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: port}}
	pods := admin.CoreV1().Pods(pod.Namespace)
	made := create(t, pods, pod)
	made.Status.Phase, made.Status.PodIP = corev1.PodRunning, ownAddress(t)
	made.Status.PodIPs = []corev1.PodIP{{IP: made.Status.PodIP}}
	made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	must(t, err)
}

func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback ones, and the API server connects to none of these")
	return ""
}

// TestPluginFindsPlantedFaults: the plugin as a user runs it. Each fault of the cluster's objects is planted, found and named, and repaired.
func TestPluginFindsPlantedFaults(t *testing.T) {
	p := newPlugin(t)
	expect := func(what string, wantCode int, says string, args ...string) {
		t.Helper()
		out, code := p.run(t, args...)
		// The API server itself needs a moment until it goes by a right that was given or taken.
		for deadline := time.Now().Add(wait.Limit(20 * time.Second)); code != wantCode || !strings.Contains(out, says); out, code = p.run(t, args...) {
			if time.Now().After(deadline) {
				t.Errorf("%s: exit status %d, want %d; it says\n%s\nand not %q", what, code, wantCode, out, says)
				return
			}
		}
	}
	expect("a sound cluster", 0, "nothing is wrong", "doctor")
	expect("its nodes", 0, "plugin-node   vg    10 GiB   9 GiB   ", "nodes")
	expect("what a class can get", 0, `"thin": 9663676416`, "nodes", "-o", "json")
	expect("an idle node", 0, "No data of nodelvm stays", "drain-check", pluginNode)
	expect("no node", 2, `"nowhere" not found`, "drain-check", "nowhere")
	expect("completion", 0, pluginNode, "__complete", "drain-check", "")
	for _, fault := range pluginFaults {
		repair := fault.plant(t)
		expect(fault.name, 1, fault.says, "doctor")
		repair()
	}
	expect("all is mended", 0, "nothing is wrong", "doctor")
	forgeDriver(t)
	expect("a pod that claims to be the driver", 0, "nothing is wrong", "doctor")
	p.page.Volumes = []report.Volume{{ID: "u/pvc-left", Group: "vg", LV: "pvc-left", Name: "pvc-left", State: "ready"}}
	expect("what such a pod denies", 1, "vg/pvc-left", "drain-check", pluginNode)
	p.page.Volumes = nil

	create(t, admin.CoreV1().ServiceAccounts(system), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})
	p.token = limited(t, "stranger")
	expect("a user who may forward no port", 0, "you need the right to create pods/portforward in the namespace nodelvm-system", "nodes")
	expect("who may not drain-check", 2, "forbidden", "drain-check", pluginNode)
	expect("who may see little", 1, "plugin-node (nodes answer)", "doctor")
	if out, _ := p.run(t, "doctor"); strings.Contains(out, "(driver object)") || !strings.Contains(out, "not checked: the rights of the driver's account") || !strings.HasSuffix(out, " 1 found.\n") {
		t.Errorf("what a user may not see is taken for absent:\n%s", out)
	}
}

// limited gives an account the right to list pods and classes, and answers its token.
func limited(t *testing.T, account string) string {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"list"}}}}
	create(t, admin.RbacV1().ClusterRoles(), role)
	create(t, admin.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: account},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: account}}})
	return tokenOfAccount(t, account)
}

// pluginFaults are what the plugin reads of this API server in another way than it reads a list; plant answers how to repair it.
var pluginFaults = []struct {
	name, says string
	plant      func(t *testing.T) (repair func())
}{
	{"missing RBAC rule", "it may not update csistoragecapacities.storage.k8s.io", func(t *testing.T) func() {
		roles := admin.RbacV1().Roles(system)
		role, err := roles.Get(t.Context(), "nodelvm", metav1.GetOptions{})
		must(t, err)
		rules := role.DeepCopy().Rules
		set := func(rules []rbacv1.PolicyRule) {
			role.Rules = rules
			role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
			must(t, err)
		}
		set(rules[1:])
		return func() { set(rules) }
	}},
	{"an account that may do everything", "it may list secrets, which the chart does not give it", func(t *testing.T) func() {
		bindings := admin.RbacV1().ClusterRoleBindings()
		create(t, bindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everyone"},
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "system:serviceaccounts"}}})
		return func() { must(t, bindings.Delete(t.Context(), "everyone", metav1.DeleteOptions{})) }
	}},
	{"snapshot-controller without the distributed flag", "Deployment default/snapshots (snapshots)", func(t *testing.T) func() {
		labels := map[string]string{"app": "snapshots"}
		deployments := admin.AppsV1().Deployments("default")
		create(t, deployments, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "snapshots"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/snapshot-controller:v8.7.0"}}}}}})
		return func() { must(t, deployments.Delete(t.Context(), "snapshots", metav1.DeleteOptions{})) }
	}},
	{"an encrypted class that the policy does not name", "the admission policy nodelvm-node-restriction does not name the class", func(t *testing.T) func() {
		newClass(t, "secret", map[string]string{"volumeGroup": "vg", "encryption": "luks2"})
		return func() {
			must(t, admin.StorageV1().StorageClasses().Delete(t.Context(), "secret", metav1.DeleteOptions{}))
		}
	}},
}
