//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/groupsnapshot"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

const (
	groupAPI      = "/apis/groupsnapshot.storage.k8s.io/v1"
	groupContents = groupAPI + "/volumegroupsnapshotcontents"
)

func groupsIn(t *testing.T) string {
	return groupAPI + "/namespaces/" + namespace(t) + "/volumegroupsnapshots"
}

// groupRights are the rights to the contents of group snapshots.
const groupRights = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "nodelvm-groups"}, "rules": [
 {"apiGroups": ["groupsnapshot.storage.k8s.io"], "resources": ["volumegroupsnapshotcontents"], "verbs": ["get", "list", "watch", "patch"]},
 {"apiGroups": ["groupsnapshot.storage.k8s.io"], "resources": ["volumegroupsnapshotcontents/status"], "verbs": ["patch"]}]},
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "nodelvm-groups"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nodelvm-groups"},
 "subjects": [{"kind": "ServiceAccount", "name": "nodelvm", "namespace": "nodelvm-system"}, {"kind": "ServiceAccount", "name": "nodelvm-controller", "namespace": "nodelvm-system"}]}]}`

// installGroupSnapshots gives the driver rights to group snapshots, and runs the snapshot controller with its feature gate, to the end of the
// test.
func installGroupSnapshots(t *testing.T) {
	t.Helper()
	kubectlAs(t, groupRights, "create", "-f=-")
	t.Cleanup(func() { kubectlAs(t, groupRights, "delete", "-f=-") })
	for _, resource := range []string{"volumegroupsnapshotclasses", "volumegroupsnapshots", "volumegroupsnapshotcontents"} {
		soon(t, resource+" are served", func() bool { return there(t, groupAPI, resource)() == nil })
	}
	startSnapshotController(t, "--feature-gates=CSIVolumeGroupSnapshot=true")
}

// startSnapshotController runs the snapshot controller with these arguments to the end of the test.
func startSnapshotController(t *testing.T, args ...string) {
	t.Helper()
	dir := t.TempDir()
	writeKubeconfig(t, filepath.Join(dir, "kubeconfig"), server, adminPass)
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command(sidecars["snapshot-controller"], append(args, "--kubeconfig="+filepath.Join(dir, "kubeconfig"), "--v=4")...) //nolint:noctx // the test's end ends it
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		must(t, log.Close())
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the snapshot controller:\n%s", text[max(0, len(text)-20_000):])
		}
	})
}

func kubectlAs(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), kubectl, append([]string{"--server=" + server, "--token=" + adminPass, "--insecure-skip-tls-verify"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, bytes.TrimSpace(out))
	}
}

// takeGroups takes the node's group snapshots to the end of the test.
func (n *node) takeGroups(t *testing.T) {
	t.Helper()
	c := config(n.token)
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return n.roundTrip(next) }
	client, err := kubeclient.NewClientFor(c)
	must(t, err)
	inBackground(t, groupsnapshot.New(groupsnapshot.Config{Client: client, Node: n.name, Host: n.host,
		Sync: func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}).Run)
}

// group is what the tests read of a VolumeGroupSnapshot and its content.
type group struct {
	Metadata struct{ Finalizers []string }
	Status   struct {
		ReadyToUse bool
		Content    string `json:"boundVolumeGroupSnapshotContentName"`
		Handle     string `json:"volumeGroupSnapshotHandle"`
		Error      struct{ Message string }
	}
}

func (n *node) groupSnapshots(t *testing.T) (count int) {
	t.Helper()
	all, err := n.host.ListSnapshots(t.Context())
	must(t, err)
	return len(all)
}

// TestGroupSnapshots with the snapshot controller: dynamic ones and their deletion, and one made by hand for a retained one.
// All that the nodes write passes the admission policy.
func TestGroupSnapshots(t *testing.T) {
	installGroupSnapshots(t)
	here, other := newNode(t, "a"), newNode(t, "b")
	for _, claim := range []*corev1.PersistentVolumeClaim{here.bound(t, "data", corev1.PersistentVolumeFilesystem), here.bound(t, "wal", corev1.PersistentVolumeBlock)} {
		labelClaim(t, claim, "shop")
	}
	logs := here.startSidecars(t)
	agent := here.start(t)
	here.takeGroups(t)
	other.takeGroups(t)
	for _, policy := range []string{"Delete", "Retain"} {
		class := "groups-" + strings.ToLower(policy)
		postGroup(t, groupAPI+"/volumegroupsnapshotclasses", "VolumeGroupSnapshotClass", class, `"driver": %q, "deletionPolicy": %q`, driver, policy)
		t.Cleanup(func() { removeRaw(t, groupAPI, "volumegroupsnapshotclasses", class) })
	}

	postGroup(t, groupsIn(t), "VolumeGroupSnapshot", "nightly", `"spec": {"volumeGroupSnapshotClassName": "groups-delete", "source": {"selector": {"matchLabels": {"app": "shop"}}}}`)
	nightly := untilGroupReady(t, "nightly")
	if members := membersOf(t); len(members) != 2 {
		t.Errorf("the members are %v", members)
	}
	soon(t, "the members' contents are labelled", func() bool { return contentsOf(t, here.name) == 2 })
	testRestoreOfMembers(t, agent)
	must(t, admin.RESTClient().Delete().AbsPath(groupsIn(t), "nightly").Do(t.Context()).Error())
	untilGone(t, "the group", there(t, groupsIn(t), "nightly"))
	untilGone(t, "its content", there(t, groupContents, nightly.Status.Content))
	soon(t, "the snapshots are deleted", func() bool { return here.groupSnapshots(t) == 0 })
	soon(t, "the members' contents are deleted", func() bool { return contentsOf(t, here.name) == 0 })

	testGroupByHand(t, here)
	expectNoWrites(t, other)
	testQuotaOfGroups(t, here)
	expectAllowed(t, here)
	testGroupOfLostNode(t)
	if t.Failed() {
		t.Log(logs())
	}
}

// testRestoreOfMembers: the driver may restore each member that the snapshot controller made, and its snapshot alone.
func testRestoreOfMembers(t *testing.T, agent *kube.Agent) {
	handles := map[string]lvm.ID{} // by the name of the VolumeSnapshot
	for _, name := range membersOf(t) {
		var snapshot, content struct {
			Status struct {
				Content string `json:"boundVolumeSnapshotContentName"`
				Handle  string `json:"snapshotHandle"`
			}
		}
		readRaw(t, &snapshot, snapshotsIn(t), name)
		readRaw(t, &content, contents, snapshot.Status.Content)
		id, err := lvm.ParseID(content.Status.Handle)
		must(t, err)
		handles[name] = id
	}
	copyOf(t, "bait", snapshotGroup, "VolumeSnapshot", "nothing", "") // the first restore of a class of the driver: the agent watches contents from now on
	for name, of := range handles {
		claim := newClaim(t, "restored", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new(snapshotGroup), Kind: "VolumeSnapshot", Name: name}
			c.Spec.StorageClassName = new("none") // csi-provisioner ignores it
		})
		may := func(of lvm.ID) error {
			return agent.MayRestore(t.Context(), claim.Namespace, claim.Name, string(claim.UID), of)
		}
		var last error
		soon(t, "member "+name+" may be restored", func() bool {
			last = may(of)
			return last == nil || lvm.KindOf(last) != lvm.KindBusy
		})
		must(t, last)
		for other, id := range handles {
			if err := may(id); other != name && lvm.KindOf(err) != lvm.KindInvalid {
				t.Errorf("%s may be restored as %s: %v", other, name, err)
			}
		}
		removeRaw(t, "/api/v1/namespaces/"+claim.Namespace+"/persistentvolumeclaims/"+claim.Name)
	}
}

func labelClaim(t *testing.T, claim *corev1.PersistentVolumeClaim, app string) {
	t.Helper()
	patchRaw(t, []string{"/api/v1/namespaces/" + claim.Namespace + "/persistentvolumeclaims/" + claim.Name}, `{"metadata": {"labels": {"app": %q}}}`, app)
}

func postGroup(t *testing.T, path, kind, name, spec string, args ...any) {
	t.Helper()
	head := fmt.Sprintf(`{"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": %q, "metadata": {"name": %q}, `, kind, name)
	raw(t, admin.RESTClient().Post().AbsPath(path), "%s", head+fmt.Sprintf(spec, args...)+"}")
}

// untilGroupReady also waits for the snapshot controller's finalizer, which it adds later: without it, a deletion leaves the content for ever.
func untilGroupReady(t *testing.T, name string) (g group) {
	t.Helper()
	soon(t, name+" is ready, with a finalizer", func() bool {
		g = group{}
		readRaw(t, &g, groupsIn(t), name)
		return g.Status.ReadyToUse && len(g.Metadata.Finalizers) > 0
	})
	return g
}

func membersOf(t *testing.T) (names []string) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	readRaw(t, &list, snapshotsIn(t))
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return names
}

// contentsOf counts the contents with a node's label.
func contentsOf(t *testing.T, node string) (count int) {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
		}
	}
	readRaw(t, &list, contents)
	for _, item := range list.Items {
		if item.Metadata.Labels[managedBy] == node {
			count++
		}
	}
	return count
}

// testGroupByHand: a retained group snapshot outlives its objects, and becomes usable again through a content that is made by hand.
func testGroupByHand(t *testing.T, here *node) {
	postGroup(t, groupsIn(t), "VolumeGroupSnapshot", "kept", `"spec": {"volumeGroupSnapshotClassName": "groups-retain", "source": {"selector": {"matchLabels": {"app": "shop"}}}}`)
	kept := untilGroupReady(t, "kept")
	var content struct {
		Status struct {
			Handle  string                            `json:"volumeGroupSnapshotHandle"`
			Members []struct{ SnapshotHandle string } `json:"volumeSnapshotInfoList"`
		}
	}
	readRaw(t, &content, groupContents, kept.Status.Content)
	must(t, admin.RESTClient().Delete().AbsPath(groupsIn(t), "kept").Do(t.Context()).Error())
	untilGone(t, "the retained group", there(t, groupsIn(t), "kept"))
	removeRaw(t, groupContents, kept.Status.Content)
	if n := here.groupSnapshots(t); n != 2 || len(content.Status.Members) != 2 {
		t.Fatalf("%d snapshots are left of %+v", n, content)
	}
	postGroup(t, groupContents, "VolumeGroupSnapshotContent", "byhand", `"spec": {"driver": %q, "deletionPolicy": "Delete", "volumeGroupSnapshotRef": {"namespace": %q, "name": "again"},
		"source": {"groupSnapshotHandles": {"volumeGroupSnapshotHandle": %q, "volumeSnapshotHandles": [%q, %q]}}}`,
		driver, namespace(t), content.Status.Handle, content.Status.Members[0].SnapshotHandle, content.Status.Members[1].SnapshotHandle)
	postGroup(t, groupsIn(t), "VolumeGroupSnapshot", "again", `"spec": {"source": {"volumeGroupSnapshotContentName": "byhand"}}`)
	soon(t, "the content made by hand is ready", func() bool {
		var g group
		readRaw(t, &g, groupContents, "byhand")
		return g.Status.ReadyToUse && g.Status.Handle == content.Status.Handle
	})
	testMemberByHand(t, here, content.Status.Members[0].SnapshotHandle)
}

// testMemberByHand: the snapshot controller makes the VolumeGroupSnapshot "again" the owner of a member's VolumeSnapshot that was made by hand, and deletes
// the content of that only after "again". Everything is deleted with "again".
func testMemberByHand(t *testing.T, here *node, handle string) {
	post(t, contents, "VolumeSnapshotContent", "member", "{}", `"spec": {"driver": %q, "deletionPolicy": "Delete", "volumeSnapshotRef": {"namespace": %q, "name": "member"}, "source": {"snapshotHandle": %q}}`,
		driver, namespace(t), handle)
	post(t, snapshotsIn(t), "VolumeSnapshot", "member", "{}", `"spec": {"source": {"volumeSnapshotContentName": "member"}}`)
	soon(t, "the group owns the member", func() bool {
		var s struct {
			Metadata struct{ OwnerReferences []struct{ Name string } }
		}
		readRaw(t, &s, snapshotsIn(t), "member")
		return len(s.Metadata.OwnerReferences) == 1 && s.Metadata.OwnerReferences[0].Name == "again"
	})
	untilGroupReady(t, "again")
	must(t, admin.RESTClient().Delete().AbsPath(groupsIn(t), "again").Do(t.Context()).Error())
	for what, object := range map[string][]string{
		"the group": {groupsIn(t), "again"}, "its content": {groupContents, "byhand"}, "the member": {snapshotsIn(t), "member"}, "the member's content": {contents, "member"},
	} {
		untilGone(t, what, there(t, object...))
	}
	if n := here.groupSnapshots(t); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
}

// testGroupOfLostNode: nodelvm-controller lets go of a content that the cluster deletes, if its node is gone: nothing else does.
func testGroupOfLostNode(t *testing.T) {
	postGroup(t, groupContents, "VolumeGroupSnapshotContent", "lost", `"spec": {"driver": %q, "deletionPolicy": "Delete", "volumeGroupSnapshotRef": {"namespace": %q, "name": "lost"},
		"source": {"volumeHandles": [%q]}}`, driver, namespace(t), groupUUID+"/pvc-lost")
	t.Cleanup(func() { removeRaw(t, groupContents, "lost") })
	patchRaw(t, []string{groupContents, "lost"}, `{"metadata": {"labels": {%q: "gone"}, "finalizers": [%q]}}`, managedBy, api.FinalizerGroupContent)
	must(t, admin.RESTClient().Delete().AbsPath(groupContents, "lost").Do(t.Context()).Error())
	startController(t, "groups")
	untilGone(t, "the content of a lost node", there(t, groupContents, "lost"))
}

// testQuotaOfGroups: a quota for snapshots does not limit the snapshots of groups, which exist before their VolumeSnapshots. The quota of the page does.
func testQuotaOfGroups(t *testing.T, here *node) {
	const snapshots, groups = "count/volumesnapshots.snapshot.storage.k8s.io", "count/volumegroupsnapshots.groupsnapshot.storage.k8s.io"
	page, err := os.ReadFile("../../docs/howto/snapshots.md")
	must(t, err)
	for _, name := range []string{snapshots, groups} {
		if !strings.Contains(string(page), "    "+name+": ") {
			t.Errorf("the quota of docs/howto/snapshots.md lacks %s", name)
		}
	}
	post := func(name string) rest.Result {
		return admin.RESTClient().Post().AbsPath(groupsIn(t)).Body([]byte(fmt.Sprintf(`{"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot", "metadata": {"name": %q},
			"spec": {"volumeGroupSnapshotClassName": "groups-delete", "source": {"selector": {"matchLabels": {"app": "shop"}}}}}`, name))).Do(t.Context())
	}
	before := here.groupSnapshots(t)
	limitTo(t, snapshots, len(membersOf(t)))
	must(t, post("beside-the-quota").Error())
	soon(t, "a group snapshot is taken beside the quota", func() bool { return here.groupSnapshots(t) == before+2 })
	soon(t, "the snapshot controller protects it", func() bool {
		var g group
		readRaw(t, &g, groupsIn(t), "beside-the-quota")
		return len(g.Metadata.Finalizers) > 0
	})
	must(t, admin.RESTClient().Delete().AbsPath(groupsIn(t), "beside-the-quota").Do(t.Context()).Error())
	soon(t, "it is deleted", func() bool { return here.groupSnapshots(t) == before })
	limitTo(t, groups, 0)
	soon(t, "the API server goes by the quota", func() bool {
		err := post("one-too-many").Error()
		if err == nil {
			must(t, admin.RESTClient().Delete().AbsPath(groupsIn(t), "one-too-many").Do(t.Context()).Error())
		}
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
	})
}

// limitTo adds a quota for a number of objects of the test's namespace, which has as many.
func limitTo(t *testing.T, what string, count int) {
	t.Helper()
	hard := corev1.ResourceList{corev1.ResourceName(what): *resource.NewQuantity(int64(count), resource.DecimalSI)}
	quotas := admin.CoreV1().ResourceQuotas(namespace(t))
	quota := create(t, quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{GenerateName: "quota-"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
	_, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	must(t, err)
}
