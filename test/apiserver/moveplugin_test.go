//go:build e2e

package apiserver

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// withDriver gives a node a kubelet, a driver's pod that moves volumes, and a published capacity. The page is the driver's.
func (m *mover) withDriver(t *testing.T, page *report.Node) {
	t.Helper()
	newKubelet(t, m.name)
	patchNode(t, m.name, `{"metadata": {"labels": {"`+topology+`": "`+m.name+`"}}, "spec": {"taints": null}}`) // no controller takes the taint off
	set, err := admin.AppsV1().DaemonSets(system).Get(t.Context(), "nodelvm", metav1.GetOptions{})
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "driver-" + m.name, Labels: set.Spec.Template.Labels}, Spec: set.DeepCopy().Spec.Template.Spec}
	pod.Spec.NodeName, pod.Spec.Containers = m.name, pod.Spec.Containers[:1]
	pod.Spec.Containers[0].Args = append(pod.Spec.Containers[0].Args, "--move=:9812")
	serve(t, pod, page)
	publishCapacity(t, m.name, "thin", "5Gi")
}

// podWith is a pod that waits, and uses claims.
func podWith(t *testing.T, name string, claims ...string) {
	t.Helper()
	makeAccount(t, namespace(t))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	create(t, admin.CoreV1().Pods(namespace(t)), pod)
}

// testMoveCommands moves volumes with kubectl's plugin, as a user does: to a node, back, and away from a node that is drained.
func testMoveCommands(t *testing.T) {
	a, b := newMover(t, "a", true), newMover(t, "b", true)
	pageOfA := &report.Node{Node: a.name, Inventory: report.Inventory{Groups: []report.Group{{Name: "vg"}}}}
	a.withDriver(t, pageOfA)
	b.withDriver(t, &report.Node{Node: b.name, Inventory: report.Inventory{Groups: []report.Group{{Name: "vg"}}}})
	data, wal := a.provisioned(t, "data"), a.provisioned(t, "wal")
	claims := []*corev1.PersistentVolumeClaim{data, wal}
	podWith(t, "db-0", "data", "wal")
	p := compilePlugin(t)
	expect := func(what string, wantCode int, says string, args ...string) (out string) {
		t.Helper()
		out, code := p.run(t, append(args, "-n", namespace(t))...)
		if code != wantCode || !strings.Contains(out, says) {
			t.Errorf("%s: exit status %d, want %d; it says\n%s\nand not %q", what, code, wantCode, out, says)
		}
		return out
	}
	expectAnnotated := func(want bool) {
		t.Helper()
		for _, claim := range claims {
			now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
			if must(t, err); (now.Annotations[api.AnnotationMoveTo] != "") != want {
				t.Errorf("claim %s has the annotations %v", claim.Name, now.Annotations)
			}
		}
	}
	expect("no moves", 0, "No moves of nodelvm's volumes.", "moves")
	expect("nothing to watch", 0, "No volume of nodelvm is moving.", "moves", "--watch")
	expect("two forms", 2, "--watch prints lines, and goes with no --output", "moves", "--watch", "-o", "wide")
	expect("a node that does not exist", 2, "the cluster has no such node", "move", "data", "--to", "nowhere")
	expect("a node that has it", 2, "claim "+data.Namespace+"/data is on node "+a.name+" already", "move", "data", "--to", a.name)
	expect("a dry run", 0, "would run: kubectl -n "+data.Namespace+" annotate pvc wal --overwrite nodelvm.io/move-to="+b.name+" nodelvm.io/move-with=data", "move", "data", "--to", b.name, "--dry-run")
	expectAnnotated(false)

	b.disks.setStuck(true)
	expect("the only other node", 0, "the claims data, wal move together (pods that use them: db-0); added to those that you named: wal", "move", "pvc/data", "--anywhere")
	expectAnnotated(true)
	expectMoves := func(what, says string) {
		t.Helper()
		wait.For(t, 30*time.Second, what, func() bool { out, _ := p.run(t, "moves", "-n", namespace(t)); return strings.Contains(out, says) })
	}
	expectMoves("the copy is listed", "Copying")
	expect("another target", 2, "is moving to node "+b.name+" already: wait for it", "move", "data", "--to", pluginNode)
	watched := p.watchMoves(t)
	expect("cancelled", 0, "persistentvolumeclaim/wal annotated", "move", "data", "--cancel")
	for _, claim := range []string{"data", "wal"} {
		if said := data.Namespace + "/" + claim + ": the move is cancelled\n"; !strings.Contains(watched(), said) {
			t.Errorf("moves --watch does not say %q:\n%s", said, watched())
		}
	}
	expectAnnotated(false)
	for _, claim := range claims {
		expectOn(t, claim, a)
	}
	expect("cancelled twice", 2, "has no move to cancel", "move", "data", "--cancel")

	b.disks.setStuck(false)
	expect("moved and waited for", 0, data.Namespace+"/data to "+b.name+": Moved", "move", "--pod", "db-0", "--to", b.name, "--wait")
	for _, claim := range claims {
		expectOn(t, claim, b)
		pageOfA.Volumes = append(pageOfA.Volumes, report.Volume{Name: claim.Spec.VolumeName, State: "moved"})
	}
	expect("its former copies", 0, a.name, "moves", "-o", "wide")
	expect("names", 0, "persistentvolumeclaim/data\npersistentvolumeclaim/wal\n", "moves", "-o", "name")
	expect("back to a node with a copy", 2, "it still has the former copy of claim data", "move", "data", "--to", a.name)
	expect("finished without an answer", 2, "give --yes to go on", "move", "data", "wal", "--finish")
	expect("finished", 0, "where no pod runs with it", "move", "data", "wal", "--finish", "--yes")
	for _, claim := range claims {
		soon(t, "the former copy is removed", func() bool { return a.disks.find(claim.Spec.VolumeName) == nil })
	}
	pageOfA.Volumes = nil

	expect("the plan of a drain", 0, "would run: kubectl -n "+data.Namespace+" annotate pvc data --overwrite nodelvm.io/move-to="+a.name, "drain", b.name, "--dry-run")
	expect("drained", 0, "All claims' volumes have left "+b.name, "drain", b.name, "--yes")
	for _, claim := range claims {
		expectOn(t, claim, a)
	}
	expect("drained twice", 0, "No claims to move.", "drain", b.name, "--yes")
	patchNode(t, b.name, `{"spec": {"unschedulable": true}}`)
	expect("nowhere to go", 1, "the node is cordoned", "drain", a.name, "--yes")
	p.token = moverOf(t)
	soon(t, "the rights are in force", func() bool { _, code := p.run(t, "moves", "-n", namespace(t)); return code == 0 })
	expect("a user of the namespace", 0, "not read: nodes: ", "move", "data", "--to", b.name, "--dry-run")
	expect("what such a user cannot plan", 2, "only if you may list nodes", "move", "data", "--anywhere")
}

// watchMoves starts moves --watch, and returns when it has printed a line. The function that it returns waits for its end, and returns what it printed.
func (p *plugin) watchMoves(t *testing.T) func() string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.path, "moves", "--watch", "-n", namespace(t))
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+p.path+".config")
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	out := bufio.NewReader(pipe)
	first, err := out.ReadString('\n')
	must(t, err)
	return sync.OnceValue(func() string {
		rest, err := io.ReadAll(out)
		must(t, errors.Join(err, cmd.Wait()))
		return first + string(rest)
	})
}

// moverOf gives an account the rights to move the claims of the test's namespace, and answers its token.
func moverOf(t *testing.T) string {
	t.Helper()
	create(t, admin.CoreV1().ServiceAccounts(system), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mover"}})
	create(t, admin.RbacV1().Roles(namespace(t)), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "mover"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "pods"}, Verbs: []string{"get", "list", "patch"}}}})
	create(t, admin.RbacV1().RoleBindings(namespace(t)), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mover"},
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "mover"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: "mover"}}})
	return tokenOfAccount(t, "mover")
}
