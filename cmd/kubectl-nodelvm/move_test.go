package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// movable is a cluster of three nodes. Pod db-0 uses the claims data and wal, and pod web the claim web; all volumes are on node-1.
func movable() *moveFacts {
	f := &moveFacts{allPods: true, classes: []storagev1.StorageClass{class("local", map[string]string{"volumeGroup": "vg-data"}), class("thin", map[string]string{"volumeGroup": "@fast", "layout": "thin"})}}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		f.nodes = append(f.nodes, corev1.Node{ObjectMeta: labelled(name)})
		f.csiNodes = append(f.csiNodes, storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: api.DriverName, NodeID: name, TopologyKeys: []string{api.TopologyKey}}}}})
		f.published = append(f.published, capacityOf(name, "local", "80Gi"), capacityOf(name, "thin", "70Gi"))
		f.drivers = append(f.drivers, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system", Name: "nodelvm-" + name},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: driverContainer, Args: []string{"serve", "--move=:9812"}}}}})
		f.answers = append(f.answers, answer{node: name, pod: "nodelvm-" + name, page: report.Node{Node: name, Cluster: ours}})
	}
	f.addClaim("data", "10Gi")
	f.addClaim("wal", "2Gi")
	f.addClaim("web", "1Gi")
	f.pods = append(podsOfShop()[:1:1], podsOfShop()[1])
	f.pods[0].Spec.Volumes = []corev1.Volume{claimVolume("data"), claimVolume("wal")}
	f.pods[1].Name, f.pods[1].Spec.Volumes = "web", []corev1.Volume{claimVolume("web")}
	for i := range f.pods {
		f.pods[i].Spec.NodeName, f.pods[i].Status.Phase = "node-1", corev1.PodRunning
		f.pods[i].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: ptr.To(true)}}
	}
	return f
}

func claimVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// addClaim adds a claim with a volume on node-1.
func (f *moveFacts) addClaim(name, size string) {
	claim := boundClaim(name, api.DriverName)
	claim.Spec.VolumeName = "pvc-uid-" + name
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	claim.Status.Capacity = claim.Spec.Resources.Requests
	pv := volume(claim.Spec.VolumeName, "node-1", vg1, "shop/"+name, size)
	pv.Spec.ClaimRef.UID, pv.Spec.StorageClassName = claim.UID, "local"
	f.claims, f.volumes = append(f.claims, claim), append(f.volumes, pv)
}

// of returns a claim and its volume.
func (f *moveFacts) of(name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim := f.claim("shop", name)
	return claim, find(f.volumes, func(pv *corev1.PersistentVolume) bool { return pv.Name == claim.Spec.VolumeName })
}

// plan plans the move of a claim.
func (f *moveFacts) plan(name, to string) *movePlan {
	claim, _ := f.of(name)
	return f.planMove([]*corev1.PersistentVolumeClaim{claim}, to)
}

// moveTo turns the PersistentVolume of a claim to another node, as after a move.
func moveTo(pv *corev1.PersistentVolume, node string) {
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{node}
}

// TestPlanOfSiblings: the claims of a pod move together, and each names the others.
func TestPlanOfSiblings(t *testing.T) {
	f := movable()
	f.snapshots = []namespaceSnapshot{snapshotOf("snap-1", "data"), snapshotOf("elsewhere", "data"), snapshotOf("other", "web")}
	f.contents = []content{snapshot("snap-1", "node-1", vg1), snapshot("elsewhere", "node-3", vg1), snapshot("other", "node-1", vg1)}
	p := f.plan("wal", "node-2")
	if refused := p.refused(); len(refused) > 0 || len(p.Groups) != 1 || len(p.Changes) != 2 {
		t.Fatalf("%q, %+v", refused, p.Changes)
	}
	for i, want := range []string{"kubectl -n shop annotate pvc data --overwrite nodelvm.io/move-to=node-2 nodelvm.io/move-with=wal",
		"kubectl -n shop annotate pvc wal --overwrite nodelvm.io/move-to=node-2 nodelvm.io/move-with=data"} {
		if got := p.Changes[i].byHand(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	notes := strings.Join(p.Groups[0].Notes, "\n")
	for _, want := range []string{"the claims data, wal move together (pods that use them: db-0); added to those that you named: data",
		"the snapshots of claim data stay on node node-1, and are lost with it: snap-1. Claims are restored from them on node node-1 alone: no such class has restoreOnOtherNodes"} {
		if !strings.Contains(notes, want) || strings.Contains(notes, "elsewhere") {
			t.Errorf("the notes are %q", notes)
		}
	}
	if pods := p.toStop(); len(pods) != 1 || pods[0].Name != "db-0" {
		t.Errorf("to stop: %v", pods)
	}
}

// TestPlanOfRestores: the plan names the classes whose claims can be restored from the snapshots that stay.
func TestPlanOfRestores(t *testing.T) {
	anywhere := map[string]string{"volumeGroup": "@fast", "layout": "thin", api.ParameterRestoreOnOtherNodes: "true"}
	encrypted := map[string]string{"layout": "thin", api.ParameterRestoreOnOtherNodes: "true", api.ParameterEncryption: "luks2"}
	for name, test := range map[string]struct {
		of      string
		classes []storagev1.StorageClass
		says    string
	}{
		"none":                  {"thin", []storagev1.StorageClass{class("thin", nil)}, "on node node-1 alone: no such class has restoreOnOtherNodes"},
		"two":                   {"thin", []storagev1.StorageClass{class("b", anywhere), class("thin", nil), class("a", anywhere)}, "Claims of the class a or b are restored from them on any node, others on node node-1 alone"},
		"of an encrypted class": {"secret", []storagev1.StorageClass{class("a", anywhere), class("secret", encrypted)}, "Claims of the class secret are"},
		"encrypted, of another": {"thin", []storagev1.StorageClass{class("thin", nil), class("secret", encrypted)}, "no such class has"},
		"of a deleted class":    {"gone", []storagev1.StorageClass{class("a", anywhere)}, "Claims of the class a are"},
		"unknown":               {"thin", nil, "on node node-1 alone, unless their class has restoreOnOtherNodes"},
	} {
		if says := (&moveFacts{classes: test.classes}).restores(test.of, "node-1"); !strings.Contains(says, test.says) {
			t.Errorf("%s: %s", name, says)
		}
	}
}

func snapshotOf(name, claim string) namespaceSnapshot {
	s := namespaceSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	s.Spec.Source.Claim = claim
	return s
}

// TestRefusedMoves: each thing that cannot move is refused in a sentence that says what to do, and nothing is written.
func TestRefusedMoves(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *moveFacts, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
		to     string
		says   string
	}{
		"no volume": {func(_ *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			claim.Spec.VolumeName, claim.Status.Phase = "", corev1.ClaimPending
		}, "node-2", "claim shop/data has no volume (Pending), so there is nothing to move; why: kubectl nodelvm why -n shop pvc/data"},
		"lost": {func(f *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.volumes, claim.Status.Phase = f.volumes[1:], corev1.ClaimLost
		}, "node-2", "claim shop/data is not bound to its PersistentVolume pvc-uid-data (Lost). If that lasts: kubectl nodelvm doctor"},
		"another driver's": {func(f *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.volumes, claim.Annotations[api.AnnotationStorageProvisioner] = f.volumes[1:], "ebs.csi.aws.com"
		}, "node-2", "claim shop/data has a volume of another driver: ebs.csi.aws.com, which nodelvm cannot move"},
		"deleted": {func(_ *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			claim.DeletionTimestamp = ptr.To(metav1.NewTime(now))
		}, "node-2", "claim shop/data is being deleted"},
		"moving elsewhere": {func(_ *moveFacts, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-3"}
		}, "node-2", "is moving to node node-3 already: wait for it (kubectl nodelvm moves -n shop), or cancel it (kubectl nodelvm move -n shop data --cancel)"},
		"same node":    {nil, "node-1", "claim shop/data is on node node-1 already"},
		"unknown node": {nil, "node-9", "node node-9 cannot have the volumes of data, wal: the cluster has no such node; the driver runs on node-1, node-2, node-3"},
		"not registered": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.csiNodes[1].Spec.Drivers = nil
		}, "node-2", "nodelvm is not registered there: CSINode node-2 lacks the driver"},
		"target moves none": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.drivers[1].Spec.Containers[0].Args = nil
		}, "node-2", "its driver does not move volumes: set move.enabled to true"},
		"source moves none": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.drivers[0].Spec.Containers[0].Args = []string{"--move="}
		}, "node-2", "the volumes of data, wal are on node node-1: its driver does not move volumes"},
		"no driver": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.drivers = f.drivers[:1]
		}, "node-2", "no driver pod runs there"},
		"cordoned": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.nodes[1].Spec.Unschedulable = true
		}, "node-2", "the node is cordoned: kubectl uncordon node-2"},
		"no capacity": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.published = f.published[:1]
		}, "node-2", "it publishes no capacity for StorageClass local"},
		"too small": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.published[2].MaximumVolumeSize = ptr.To(resource.MustParse("9Gi"))
		}, "node-2", "it has capacity for a volume of at most 9 GiB of StorageClass local, and that of claim data has 10 GiB"},
		"too small together": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.published[2].MaximumVolumeSize = ptr.To(resource.MustParse("11Gi"))
		}, "node-2", "of which other volumes of this plan take 10 GiB, and that of claim wal has 2 GiB"},
		"former copy there": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			f.answers[1].page.Volumes = []report.Volume{{Name: pv.Name, State: string(lvm.StateMoved)}}
		}, "node-2", "it still has the former copy of claim data, which moved away from there: kubectl nodelvm move -n shop data --finish"},
		"sibling elsewhere": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			_, pv := f.of("wal")
			moveTo(pv, "node-3")
		}, "node-2", "the pod also uses claim wal, whose volume is on node-3"},
		"pod without a controller": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.pods[0].OwnerReferences = nil
		}, "node-2", "pod shop/db-0 uses the volume on node node-1 and has no controller, so nothing creates it again: keep its manifest (kubectl -n shop get pod db-0 -o yaml), delete it, and repeat the command"},
		"class gone": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.classes = f.classes[1:]
		}, "node-2", `storage class "local" of claim shop/data does not exist`},
		"not allowed": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.classes[0].AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: api.TopologyKey, Values: []string{"node-1", "node-3"}}}}}
		}, "node-2", "allowedTopologies of the StorageClass excludes it"},
		"selected node": {func(_ *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			claim.Annotations[api.AnnotationSelectedNode] = "node-7"
		}, "node-2", "annotate pvc data --overwrite volume.kubernetes.io/selected-node=node-1"},
		"read-only copy": {func(_ *moveFacts, claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}, "node-2", "is a read-only copy, which does not move"},
		"adopted": {func(_ *moveFacts, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Name, claim.Spec.VolumeName = "by-hand", "by-hand"
		}, "node-2", "PersistentVolume by-hand of claim shop/data was not created for it"},
		"labels": {func(_ *moveFacts, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Labels = map[string]string{"a": "b"}
		}, "node-2", "has labels, which no node may write: remove them"},
		"anti-affinity": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.apart("db-0", "web", "node-2")
		}, "node-2", "pods db-0 and shop/web (on node node-2) may not run together (required anti-affinity)"},
		"no CPU": {func(f *moveFacts, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			f.requests(0, "3")
			f.requests(1, "2")
			f.pods[1].Spec.NodeName = "node-2"
			f.nodes[1].Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		}, "node-2", "it has 2 of cpu left for pods, and pod db-0 requests 3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := movable()
			claim, pv := f.of("data")
			if test.change != nil {
				test.change(f, claim, pv)
			}
			p := f.planMove([]*corev1.PersistentVolumeClaim{claim}, test.to)
			if got := strings.Join(p.refused(), "\n"); !strings.Contains(got, test.says) || len(p.Changes) > 0 {
				t.Errorf("refused %q with the changes %+v; want %q", got, p.Changes, test.says)
			}
		})
	}
}

// apart gives a pod a required anti-affinity to another one, which runs on a node.
func (f *moveFacts) apart(pod, other, node string) {
	for i := range f.pods {
		p := &f.pods[i]
		p.Labels = map[string]string{"app": p.Name}
		if p.Name == other {
			p.Spec.NodeName = node
		}
		if p.Name == pod {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": other}}, TopologyKey: api.TopologyKey}}}}
		}
	}
}

func (f *moveFacts) requests(pod int, cpu string) {
	f.pods[pod].Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
}

// TestAnywhere: the node with the most capacity is chosen, and each other node says why it was passed over.
func TestAnywhere(t *testing.T) {
	f := movable()
	if g := f.plan("data", "").Groups[0]; g.To != "node-2" || len(g.PassedOver) > 0 {
		t.Errorf("of two equal ones: %s, %v", g.To, g.PassedOver)
	}
	f.published[2].MaximumVolumeSize = ptr.To(resource.MustParse("20Gi"))
	if g := f.plan("data", "").Groups[0]; g.To != "node-3" || len(g.PassedOver) > 0 {
		t.Errorf("with less on node-2: %s, %v", g.To, g.PassedOver)
	}
	f.nodes[2].Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	if g := f.plan("data", "").Groups[0]; g.To != "node-2" || len(g.PassedOver) != 1 || g.PassedOver[0].Node != "node-3" || !strings.Contains(g.PassedOver[0].Obstacles[0], "taint gpu") {
		t.Errorf("with a taint on node-3: %s, %v", g.To, g.PassedOver)
	}
	f.nodes[1].Spec.Unschedulable = true
	g := f.plan("data", "").Groups[0]
	if g.To != "" || len(g.PassedOver) != 2 || !slices.Equal(g.Refused, []string{"no other node can have the volumes of data, wal"}) {
		t.Errorf("without a node: %+v", g)
	}
	f.pods = nil
	if g := f.plan("data", "").Groups[0]; len(g.PassedOver) != 2 || !strings.HasPrefix(g.PassedOver[1].Obstacles[0], "no pod uses the claims now, and one without tolerations does not tolerate its taint gpu") {
		t.Errorf("without pods: %+v", g.PassedOver)
	}
}

// TestNodesWithoutDriverAreOneLine: among many nodes without the driver, the node that an admin can do something about is not lost.
func TestNodesWithoutDriverAreOneLine(t *testing.T) {
	f := movable()
	f.nodes[1].Spec.Unschedulable, f.nodes[2].Spec.Unschedulable = true, true
	for i := range 30 {
		f.nodes = append(f.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a-%02d", i)}})
	}
	var out bytes.Buffer
	must(t, f.plan("data", "").write(&out))
	lines := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool { return !strings.HasPrefix(line, "passed over: ") })
	if len(lines) != 3 || lines[0] != "passed over: node-2 for data, wal: the node is cordoned: kubectl uncordon node-2" ||
		!strings.HasPrefix(lines[2], "passed over: 30 nodes without a driver that receives volumes: a-00, a-01, ") || !strings.HasSuffix(lines[2], " more nodes") {
		t.Errorf("%q", lines)
	}
}

// TestUnknownIsNoObstacle: a user with rights in one namespace can move claims; what was not read is no obstacle.
func TestUnknownIsNoObstacle(t *testing.T) {
	f := movable()
	f.allPods, f.volumes, f.classes, f.nodes, f.csiNodes, f.published, f.contents, f.drivers, f.answers = false, nil, nil, nil, nil, nil, nil, nil, nil
	f.unread = []string{"nodes: forbidden"}
	p := f.plan("data", "node-2")
	if len(p.refused()) > 0 || len(p.Changes) != 2 || p.Groups[0].From != "node-1" {
		t.Errorf("%q, %+v", p.refused(), p)
	}
	var out bytes.Buffer
	if err := p.write(&out); err != nil || !strings.Contains(out.String(), "\nnot read: nodes: forbidden\n") {
		t.Errorf("%v: %s", err, &out)
	}
	if p := f.plan("data", ""); p.Groups[0].To != "" {
		t.Errorf("without nodes it chose %s", p.Groups[0].To)
	}
}

// TestRepeatedMove: a move that has begun is not written again; claims that lack the annotation get it.
func TestRepeatedMove(t *testing.T) {
	f := movable()
	data, pv := f.of("data")
	data.Annotations[api.AnnotationMoveTo], data.Annotations[api.AnnotationMoveWith] = "node-2", "wal"
	if p := f.plan("data", "node-2"); len(p.Changes) != 1 || p.Changes[0].Claim != "wal" {
		t.Errorf("interrupted between two claims: %+v", p.Changes)
	}
	pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-2"}
	wal, _ := f.of("wal")
	wal.Annotations[api.AnnotationMoveTo], wal.Annotations[api.AnnotationMoveWith] = "node-2", "data"
	f.pods[0].OwnerReferences = nil // no matter by now
	if p := f.plan("data", "node-2"); len(p.refused()) > 0 || len(p.Changes) > 0 || p.Groups[0].To != "node-2" {
		t.Errorf("begun: %q, %+v", p.refused(), p.Changes)
	}
	if p := f.plan("data", "node-3"); len(p.refused()) == 0 {
		t.Error("a move that has begun gets another target")
	}
	delete(wal.Annotations, api.AnnotationMoveWith)
	data.Annotations[api.AnnotationMoveWith] = "gone, wal"
	pv.Annotations, f.pods = nil, nil
	if p := f.plan("data", "node-2"); len(p.Changes) != 2 || p.Changes[0].Annotations[api.AnnotationMoveWith] != "wal" {
		t.Errorf("claims that an annotation ties: %+v", p.Changes)
	}
}

// TestMoveOfPod: --pod names all claims that can move; those of ephemeral volumes are deleted with the pod.
func TestMoveOfPod(t *testing.T) {
	f := movable()
	f.addClaim("db-0-scratch", "1Gi")
	scratch, _ := f.of("db-0-scratch")
	scratch.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db-0", Controller: ptr.To(true)}}
	f.pods[0].Spec.Volumes = append(f.pods[0].Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	claims, err := f.asked("shop", nil, "pod/db-0")
	if err != nil || len(claims) != 2 {
		t.Fatalf("%v, %v", claims, err)
	}
	p := f.planMove(claims, "node-2")
	if len(p.Groups) != 1 || len(p.Groups[0].Claims) != 2 || len(p.refused()) > 0 {
		t.Errorf("%+v, %q", p.Groups[0], p.refused())
	}
	if _, err := f.asked("shop", nil, "nobody"); err == nil || !strings.Contains(err.Error(), `no pod "nobody"`) {
		t.Errorf("%v", err)
	}
	if _, err := f.asked("shop", []string{"pvc/data", "nothing"}, ""); err == nil || !strings.Contains(err.Error(), `namespace shop has no claim "nothing"; choose the namespace with -n`) {
		t.Errorf("%v", err)
	}
}

// TestPlanOfDrain: the largest group gets its node first, capacity is planned once, and what does not move is listed.
func TestPlanOfDrain(t *testing.T) {
	f := movable()
	f.published[2].MaximumVolumeSize, f.published[4].MaximumVolumeSize = ptr.To(resource.MustParse("12Gi")), ptr.To(resource.MustParse("5Gi"))
	f.addClaim("released", "1Gi")
	f.claims = f.claims[:3]
	f.contents = []content{snapshot("snap-1", "node-1", vg1), snapshot("there", "node-2", vg1)}
	p := f.planDrain("node-1", "")
	if len(p.refused()) > 0 || len(p.Changes) != 3 || p.Groups[0].To != "node-2" || p.Groups[1].To != "node-3" {
		t.Errorf("%q, %+v", p.refused(), p.Changes)
	}
	if len(p.Stays) != 2 || p.Stays[0].Kind != "claim" || p.Stays[1].Name != "shop/snap-1" {
		t.Errorf("stays %+v", p.Stays)
	}
	f.answers[0].page.Volumes = []report.Volume{{ID: vg1 + "/pvc-uid-web", Used: ptr.To(100 * MiB)}}
	var out bytes.Buffer
	must(t, f.planDrain("node-1", "").writeDrain(&out, "node-1", f.node("node-1")))
	golden(t, "drain.txt", out.Bytes())
	web, _ := f.of("web")
	web.Annotations[api.AnnotationMoveTo] = "node-3"
	f.published[4].MaximumVolumeSize = ptr.To(resource.MustParse("1Gi")) // less than on node-2, but still enough
	f.published[2].MaximumVolumeSize = ptr.To(resource.MustParse("50Gi"))
	if p := f.planDrain("node-1", ""); p.Groups[1].To != "node-3" || len(p.Changes) != 2 {
		t.Errorf("a claim with a target: %+v, %+v", p.Groups[1], p.Changes)
	}
	f.nodes[1].Spec.Unschedulable = true
	p = f.planDrain("node-1", "")
	if len(p.refused()) != 1 || p.Groups[0].To != "" || p.Groups[1].To != "node-3" || len(p.Groups[0].PassedOver) != 2 {
		t.Errorf("%q, %+v", p.refused(), p.Groups[0])
	}
}

// TestSharedGroups: two classes share the capacity of a node unless the node reports different volume groups.
func TestSharedGroups(t *testing.T) {
	f := movable()
	_, pv := f.of("wal")
	wal, _ := f.of("wal")
	wal.Spec.StorageClassName, pv.Spec.StorageClassName = ptr.To("thin"), "thin"
	f.published[2].MaximumVolumeSize, f.published[3].MaximumVolumeSize = ptr.To(resource.MustParse("11Gi")), ptr.To(resource.MustParse("11Gi"))
	if refused := f.plan("data", "node-2").refused(); len(refused) != 1 {
		t.Errorf("unknown groups: %q", refused)
	}
	offer := func(name string, group lvm.VGName) report.Class {
		return report.Class{Name: name, Offers: []report.Offer{{Group: group}}}
	}
	f.answers[1].page.Classes = []report.Class{offer("local", "slow"), offer("thin", "fast")}
	if refused := f.plan("data", "node-2").refused(); len(refused) != 0 {
		t.Errorf("different groups: %q", refused)
	}
	f.answers[1].page.Classes = []report.Class{offer("local", "fast"), offer("thin", "fast")}
	if refused := f.plan("data", "node-2").refused(); len(refused) != 1 {
		t.Errorf("one group: %q", refused)
	}
}

// TestEstimate: thin volumes count with their blocks, and a driver's limit counts.
func TestEstimate(t *testing.T) {
	f := movable()
	if g := f.plan("web", "node-2").Groups[0]; g.Seconds != 10 {
		t.Errorf("1 GiB at %s: %d s", defaultRate, g.Seconds)
	}
	f.answers[0].page.Volumes = []report.Volume{{ID: vg1 + "/pvc-uid-web", Used: ptr.To(100 * MiB)}}
	if g := f.plan("web", "node-2").Groups[0]; g.Seconds != 1 || g.Claims[0].Copied != 100*MiB || g.Claims[0].Size != GiB {
		t.Errorf("100 MiB of 1 GiB: %+v", g)
	}
	f.drivers[0].Spec.Containers[0].Args = append(f.drivers[0].Spec.Containers[0].Args, "--move-rate=10Mi")
	if g := f.plan("web", "node-2").Groups[0]; g.Seconds != 102 {
		t.Errorf("1 GiB at 10 MiB/s: %+v", g)
	}
}

// TestCancelledMoves: the annotations of all claims of the move go; what cannot be cancelled is refused.
func TestCancelledMoves(t *testing.T) {
	f := movable()
	data, pv := f.of("data")
	wal, _ := f.of("wal")
	asked := []*corev1.PersistentVolumeClaim{data}
	if _, refused := f.planCancel(asked); !slices.Equal(refused, []string{"claim shop/data has no move to cancel"}) {
		t.Errorf("%q", refused)
	}
	data.Annotations[api.AnnotationMoveTo], wal.Annotations[api.AnnotationMoveTo], wal.Annotations[api.AnnotationMoveWith] = "node-2", "node-2", "data"
	changes, refused := f.planCancel(asked)
	if len(refused) > 0 || len(changes) != 2 || changes[1].byHand() != "kubectl -n shop annotate pvc wal --overwrite nodelvm.io/move-to- nodelvm.io/move-with-" {
		t.Errorf("%q, %+v", refused, changes)
	}
	pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-2", api.AnnotationMoveRecord: "{}", api.AnnotationHandedOver: "x"}
	if _, refused := f.planCancel(asked); len(refused) != 1 || !strings.Contains(refused[0], "cannot be cancelled: wait for its end, and move the volume back (--to node-1)") {
		t.Errorf("%q", refused)
	}
	pv.Annotations = nil
	moveTo(pv, "node-2")
	data.Annotations[api.AnnotationMoveStatus] = `{"phase": "Moved", "from": "node-1", "to": "node-2"}`
	if _, refused := f.planCancel(asked); len(refused) != 1 || !strings.Contains(refused[0], "is on node node-2, so there is no move to cancel. To move it back: kubectl nodelvm move -n shop data --to node-1") {
		t.Errorf("%q", refused)
	}
}

// TestHostileClaims: what a tenant writes into a claim reaches neither the terminal, nor a command that an admin pastes, nor the path of a request.
func TestHostileClaims(t *testing.T) {
	f := movable()
	data, pv := f.of("data")
	moveTo(pv, "node-2")
	data.Annotations[api.AnnotationMoveTo] = "node-2"
	data.Annotations[api.AnnotationMoveStatus] = `{"phase": "Moved", "from": "node-1; reboot", "to": "node-2", "message": "\u001b[2J"}`
	if _, refused := f.planCancel([]*corev1.PersistentVolumeClaim{data}); len(refused) != 1 || !strings.HasSuffix(refused[0], " --to 'node-1; reboot'") {
		t.Errorf("%q", refused)
	}
	f = movable()
	data, _ = f.of("data")
	f.volumes, data.Annotations[api.AnnotationStorageProvisioner] = f.volumes[1:], "a\u202eb"
	if p := f.plan("data", "node-2"); !strings.Contains(p.Groups[0].Refused[0], `a\u202eb`) {
		t.Errorf("%q", p.Groups[0].Refused)
	}
	data.Spec.VolumeName, data.Annotations[api.AnnotationMoveTo] = "../namespaces/kube-system/secrets/key", "node-2"
	c, asked := apiServer(t, map[string]any{"/api/v1/namespaces/shop/persistentvolumeclaims/data": corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}, ObjectMeta: data.ObjectMeta, Spec: data.Spec}})
	if claim, pv, known, err := c.claimWithVolume(t.Context(), "shop", "data"); err != nil || claim == nil || pv != nil || !known || len(asked()) != 1 {
		t.Errorf("%v, %v, %v, %v after %q", claim, pv, known, err, asked())
	}
}

// TestFinishedMoves: the node with the former copy is the one that reports it, or else that of the status.
func TestFinishedMoves(t *testing.T) {
	f := movable()
	data, pv := f.of("data")
	asked := []*corev1.PersistentVolumeClaim{data}
	moveTo(pv, "node-2")
	if _, _, refused := f.planFinish(asked); len(refused) != 1 || !strings.Contains(refused[0], "nothing shows a former copy") {
		t.Errorf("%q", refused)
	}
	data.Annotations[api.AnnotationMoveStatus] = `{"phase": "Moved", "from": "node-1", "to": "node-2"}`
	if _, _, refused := f.planFinish(asked); len(refused) != 1 {
		t.Errorf("a node that has none: %q", refused)
	}
	left := []report.Volume{{Name: pv.Name, State: string(lvm.StateMoved), Cluster: ours}}
	f.answers[0].page.Volumes = left
	changes, questions, refused := f.planFinish(asked)
	if len(refused) > 0 || len(changes) != 1 || changes[0].Annotations[api.AnnotationMoveFinish] != "node-1" || !strings.Contains(questions[0], "where no pod runs with it") {
		t.Errorf("%q, %+v, %q", refused, changes, questions)
	}
	data.Annotations[api.AnnotationMoveTo] = "node-2" // as a restored claim would ask again
	if changes, _, _ := f.planFinish(asked); changes[0].byHand() != "kubectl -n shop annotate pvc data --overwrite nodelvm.io/move-to- nodelvm.io/move-finish=node-1" {
		t.Errorf("%s", changes[0].byHand())
	}
	f.pods[0].Spec.NodeName = "node-2"
	if _, questions, _ = f.planFinish(asked); questions[0] != "claim shop/data: the copy on node node-1 will be deleted. The volume is on node node-2" {
		t.Errorf("%q", questions)
	}
	f.answers[2].page.Volumes = left
	if changes, questions, _ = f.planFinish(asked); len(changes) != 1 || !strings.HasSuffix(questions[0], "The volume is on node node-2. Repeat the command then, for the copy on node node-3") {
		t.Errorf("after two moves: %q", questions)
	}
	f.answers = nil
	if changes, _, _ := f.planFinish(asked); len(changes) != 1 || changes[0].Annotations[api.AnnotationMoveFinish] != "node-1" {
		t.Errorf("by the status: %+v", changes)
	}
	pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-3"}
	if _, _, refused := f.planFinish(asked); len(refused) != 1 || !strings.Contains(refused[0], "is moving") {
		t.Errorf("%q", refused)
	}
}

// TestMoveRows: where a volume is, its PersistentVolume says; a status that contradicts it does not count.
func TestMoveRows(t *testing.T) {
	status := func(phase, from, to string, age time.Duration) string {
		return fmt.Sprintf(`{"phase": %q, "from": %q, "to": %q, "message": "why\u001b", "done": 536870912, "total": 1073741824, "time": %q}`, phase, from, to, now.Add(-age).Format(time.RFC3339Nano))
	}
	for name, test := range map[string]struct {
		to, status string
		change     func(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume)
		unknown    bool
		want       string // "": no row
	}{
		"no move":           {},
		"not begun":         {to: "node-2", want: "node-1 node-2 Waiting node node-1 has not answered: does its driver move volumes (move.enabled)?"},
		"refused":           {to: "node-2", status: status("Waiting", "node-1", "node-2", 0), want: `node-1 node-2 Waiting why\x1b`},
		"a forged end":      {to: "node-2", status: status("Moved", "node-1", "node-2", 0), want: "node-1 node-2 Waiting node node-1 has not answered: does its driver move volumes (move.enabled)?"},
		"of another target": {to: "node-2", status: status("Waiting", "node-1", "node-3", 0), want: "node-1 node-2 Waiting node node-1 has not answered: does its driver move volumes (move.enabled)?"},
		"copying":           {to: "node-2", status: status("Copying", "node-1", "node-2", 0), change: marked, want: `node-1 node-2 Copying 50% why\x1b`},
		"begins":            {to: "node-2", change: marked, want: "node-1 node-2 Preparing "},
		"second time":       {to: "node-2", status: status("Moved", "node-3", "node-1", time.Hour), change: marked, want: "node-1 node-2 Preparing "},
		"switching": {to: "node-2", status: status("Copying", "node-1", "node-2", 0), change: func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			marked(nil, pv)
			moveTo(pv, "node-2")
		}, want: `node-1 node-2 Switching why\x1b`},
		"lost for a moment": {to: "node-2", status: status("Switching", "node-1", "node-2", 0), change: func(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			claim.Status.Phase, pv.Name = corev1.ClaimLost, "gone"
		}, want: `node-1 node-2 Switching why\x1b`},
		"moved":             {to: "node-2", status: status("Moved", "node-1", "node-2", time.Hour), change: moved, want: `node-1 node-2 Moved why\x1b`},
		"moved, not told":   {to: "node-2", status: status("Switching", "node-1", "node-2", time.Hour), change: moved, want: "node-1 node-2 Moved "},
		"moved long ago":    {to: "node-2", status: status("Moved", "node-1", "node-2", 25*time.Hour), change: moved},
		"cancelled":         {status: status("Cancelled", "node-1", "node-2", time.Hour), want: `node-1 - Cancelled why\x1b`},
		"being cancelled":   {status: status("Cancelled", "node-1", "node-2", 0), change: marked, want: `node-1 node-2 Cancelled why\x1b`},
		"created there":     {to: "node-1"},
		"unknown, copying":  {to: "node-2", status: status("Copying", "node-1", "node-2", 0), unknown: true, want: `node-1 node-2 Copying 50% why\x1b`},
		"unknown, no reply": {to: "node-2", unknown: true, want: "- node-2 Waiting node of the volume has not answered: does its driver move volumes (move.enabled)?"},
	} {
		t.Run(name, func(t *testing.T) {
			f := movable()
			claim, pv := f.of("data")
			if test.to != "" {
				claim.Annotations[api.AnnotationMoveTo] = test.to
			}
			claim.Annotations[api.AnnotationMoveStatus] = test.status
			if test.change != nil {
				test.change(claim, pv)
			}
			rows := moveRowsOf(f.claims[:1], f.volumes, !test.unknown, nil, nil, now)
			got := ""
			if len(rows) > 0 {
				got = strings.Join(append(strings.Fields(cmp.Or(rows[0].From, "-")+" "+cmp.Or(rows[0].To, "-")+" "+rows[0].Phase+" "+rows[0].progress()), rows[0].Text), " ")
			}
			if got != test.want || len(rows) > 1 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func marked(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-2"}
}

func moved(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { moveTo(pv, "node-2") }

// TestMovesTable: active moves, one that has ended, and former copies, that of a deleted claim too.
func TestMovesTable(t *testing.T) {
	f := movable()
	data, pv := f.of("data")
	data.Annotations[api.AnnotationMoveTo] = "node-2"
	data.Annotations[api.AnnotationMoveStatus] = fmt.Sprintf(`{"phase": "Copying", "from": "node-1", "to": "node-2", "message": "4 GiB of 10 GiB are copied to node node-2", "done": 4294967296, "total": 10737418240, "time": %q}`, now.Add(-4*time.Second).Format(time.RFC3339Nano))
	marked(nil, pv)
	_, web := f.of("web")
	moveTo(web, "node-2")
	f.answers[0].page.Volumes = []report.Volume{{Name: web.Name, State: string(lvm.StateMoved), Cluster: ours}, {Name: "pvc-gone", Group: "vg-data", LV: "pvc-gone", Claim: "shop/gone", State: string(lvm.StateMoved), Size: GiB, Cluster: ours},
		{Name: "pvc-theirs", Claim: "shop/theirs", State: string(lvm.StateMoved), Cluster: another}}
	rows := moveRowsOf(f.claims, f.volumes, true, usersOf(f.pods), f.answers, now)
	golden(t, "moves.txt", []byte(printed(t, moveTable(rows, now, false))))
	golden(t, "moves-wide.txt", []byte(printed(t, moveTable(rows, now, true))))
	var out bytes.Buffer
	if err := printRows(&settings{format: "name"}, &out, rows, nil); err != nil || out.String() != "persistentvolumeclaim/data\npersistentvolumeclaim/web\n" {
		t.Errorf("%v, %q", err, &out)
	}
	if got := printed(t, moveTable(nil, now, false)); got != "No moves of nodelvm's volumes.\n" {
		t.Errorf("%q", got)
	}
	if got := rows[0].line(); got != "shop/data to node-2: Copying [========            ] 40% (4 of 10 GiB): 4 GiB of 10 GiB are copied to node node-2" {
		t.Errorf("%q", got)
	}
	ahead := moveRow{Claim: "shop/data", To: "node-2", Phase: api.MoveStopping, Done: GiB, Total: 4 * GiB}
	if got := ahead.line(); got != "shop/data to node-2: Stopping [=====               ] 25% (1 of 4 GiB)" || ahead.progress() != "25%" {
		t.Errorf("while the pod runs: %q, %q", got, ahead.progress())
	}
}

// TestWatchedMoves: of the moves that have not ended each is followed to its target.
func TestWatchedMoves(t *testing.T) {
	rows := []moveRow{{Claim: "shop/data", To: "node-2", Phase: api.MoveCopying}, {Claim: "shop/wal", To: "node-2", Phase: api.MoveMoved}, {Claim: "shop/old", To: "node-3", Phase: api.MoveCancelled}}
	if list := watched(rows); len(list) != 1 || *list[0] != (followed{namespace: "shop", claim: "data", to: "node-2"}) {
		t.Errorf("followed are %+v", list)
	}
}

// TestFollow: a line is printed when something changes, a request that fails is repeated, and the end of each move is found. An API server that has just
// started forbids requests until it has read its roles.
func TestFollow(t *testing.T) {
	f := movable()
	looks, forbidden := 0, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", errors.New("no role"))
	follower := &follower{every: time.Microsecond, now: func() time.Time { return now }, read: func(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, bool, error) {
		claim, pv := f.of(name)
		if name == "data" {
			looks++
			switch looks {
			case 1, 2:
				claim.Annotations[api.AnnotationMoveTo] = "node-2"
				marked(nil, pv)
			case 3:
				return nil, nil, true, errors.New("connection refused")
			case 4:
				return nil, nil, true, forbidden
			case 5:
				pv.Annotations = nil
				moveTo(pv, "node-2")
			}
		}
		if name == "web" {
			return nil, nil, true, nil
		}
		return claim, pv, true, nil
	}}
	list := []*followed{{namespace: "shop", claim: "data", to: "node-2"}, {namespace: "shop", claim: "wal", to: "node-2"}, {namespace: "shop", claim: "web", to: "node-2"}}
	var out bytes.Buffer
	must(t, follower.follow(t.Context(), &out, list))
	const want = `12:00:00 shop/data to node-2: Preparing
12:00:00 shop/wal: the move is cancelled
12:00:00 shop/web: the claim is deleted
12:00:00 shop/data: cannot be read, will retry: connection refused
12:00:00 shop/data: cannot be read, will retry: persistentvolumeclaims "data" is forbidden: no role
12:00:00 shop/data is on node-2
`
	if out.String() != want || list[0].left != "" || list[1].left == "" || list[2].left == "" {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := follower.follow(ctx, &out, []*followed{{namespace: "shop", claim: "wal", to: "node-2"}, {namespace: "shop", claim: "data", to: "node-3"}}); !errors.Is(err, errInterrupted) {
		t.Errorf("%v", err)
	}
	follower.read = func(context.Context, string, string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, bool, error) {
		return nil, nil, true, forbidden
	}
	if err := follower.follow(t.Context(), &out, []*followed{{namespace: "shop", claim: "data", to: "node-2"}}); !errors.Is(err, forbidden) {
		t.Errorf("a claim that was never read: %v", err)
	}
}

// TestMoveFlags: flags that say nothing, or two things, are refused.
func TestMoveFlags(t *testing.T) {
	for args, says := range map[string]string{
		"move data":                              "give --to NODE, --anywhere, --cancel or --finish",
		"move data --to node-2 --anywhere":       "--anywhere and --to NODE do not go together",
		"move --cancel":                          "give the names of claims, or --pod POD",
		"move data --pod db-0 --cancel":          "not both",
		"move data --wait --to node-2 --dry-run": "--wait waits for moves that the command begins",
		"move data --to node-2 -o name":          "move lists no objects of the API",
		"drain":                                  "accepts 1 arg",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want it to say %q", args, err, says)
		}
	}
}

// TestConfirm: only yes is yes, and a program that cannot answer is not asked.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "yesterday\n": false} {
		cmd := newRoot()
		cmd.SetErr(&bytes.Buffer{})
		cmd.SetIn(strings.NewReader(answer))
		if err := confirm(cmd, false, "Really?"); (err == nil) != want || err != nil && !errors.Is(err, errNotConfirmed) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	if err := confirm(newRoot(), true, "Really?"); err != nil {
		t.Error(err)
	}
}

// TestDrainOfATarget: what moves to the node meanwhile is data there again, so a drain says so, and does not say that all volumes have left.
func TestDrainOfATarget(t *testing.T) {
	for name, change := range map[string]func(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume){
		"asked for": func(claim *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			claim.Annotations[api.AnnotationMoveTo] = "node-3"
		},
		"moving": func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-3"}
		},
		"switching": func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			moveTo(pv, "node-3")
			pv.Annotations = map[string]string{api.AnnotationMovingTo: "node-3"}
		},
	} {
		f := movable()
		claim, pv := f.of("web")
		change(claim, pv)
		p := f.planDrain("node-3", "")
		var out bytes.Buffer
		err := p.writeDrain(&out, "node-3", f.node("node-3"))
		if got := strings.Join(p.refused(), "\n"); err != nil || !strings.Contains(got, "claim shop/web is moving to node node-3") || !strings.Contains(out.String(), got) || len(p.Changes) > 0 {
			t.Errorf("%s: %v, refused %q, printed %s", name, err, got, &out)
		}
	}
	f := movable()
	claim, pv := f.of("web")
	claim.Annotations[api.AnnotationMoveTo], claim.Annotations[api.AnnotationSelectedNode] = "node-3", "node-3" // they stay there after a move
	moveTo(pv, "node-3")
	if p := f.planDrain("node-3", ""); len(p.refused()) > 0 || len(p.Changes) != 1 {
		t.Errorf("after a move: %q, %+v", p.refused(), p.Changes)
	}
}

// TestDrainOfALargeCluster: a plan compares each volume's pods with all pods, for each node, and takes no longer than a user waits.
func TestDrainOfALargeCluster(t *testing.T) {
	limit := wait.Limit(10 * time.Second) // it takes one
	f := movable()
	for i := range 300 {
		name := fmt.Sprintf("large-%d", i)
		f.nodes = append(f.nodes, corev1.Node{ObjectMeta: labelled(name), Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}})
		registered := f.csiNodes[0]
		registered.Name, registered.Spec.Drivers = name, slices.Clone(registered.Spec.Drivers)
		registered.Spec.Drivers[0].NodeID = name
		f.csiNodes, f.published = append(f.csiNodes, registered), append(f.published, capacityOf(name, "local", "80Gi"))
		f.drivers = append(f.drivers, f.drivers[0])
		f.drivers[len(f.drivers)-1].Spec.NodeName = name
		for j := range 30 {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, j)}}
			pod.Spec.NodeName = name
			f.pods = append(f.pods, pod)
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("more-%d", i)
		f.addClaim(name, "1Gi")
		pod := f.pods[1]
		pod.Name, pod.Spec.Volumes = name, []corev1.Volume{claimVolume(name)}
		f.pods = append(f.pods, pod)
	}
	f.apart("more-0", "more-1", "node-1")
	began := time.Now()
	p := f.planDrain("node-1", "")
	if took := time.Since(began); took > limit || len(p.refused()) > 0 || len(p.Changes) != 23 {
		t.Errorf("%s; %q, %d changes", took, p.refused(), len(p.Changes))
	}
}
