package kube

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// FuzzVolumesAndClaims feeds arbitrary PersistentVolumes and claims to the functions that decide on them. None panics, a
// valid chain has references that agree, and the stripped object gives the same decisions as the whole one.
func FuzzVolumesAndClaims(f *testing.F) {
	pv, c := kubetest.VolumeOn("node-1", "data"), kubetest.Claim("data", "late", "pvc-data")
	pv.Annotations = map[string]string{api.AnnotationLostSince: "2026-01-02T03:04:05Z", api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z", api.AnnotationReclaimPolicy: "Delete"}
	for _, o := range []any{pv, c} {
		text, err := json.Marshal(o)
		must(f, err)
		f.Add(text, text)
	}
	volume, err := json.Marshal(pv)
	must(f, err)
	bound, err := json.Marshal(c)
	must(f, err)
	f.Add(volume, bound)
	f.Add([]byte(`{"spec": {"csi": null, "claimRef": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}}}`), []byte(`{"spec": {"dataSourceRef": {"kind": "VolumeSnapshot"}}}`))
	f.Add(volume, []byte(`{"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:dataSourceRef": {}}}}]}, "spec": {"selector": {}}}`))
	f.Add([]byte(`{"metadata": {"annotations": {"nodelvm.io/lost-since": "2026-01-02T03:04:05Z"}}}`), bound) // without a node
	f.Fuzz(func(t *testing.T, volume, bound []byte) {
		var pv corev1.PersistentVolume
		var c corev1.PersistentVolumeClaim
		if json.Unmarshal(volume, &pv) != nil || json.Unmarshal(bound, &c) != nil {
			return
		}
		node := pending.NodeOf(&pv)
		if err := kubeclient.Chain(&pv, &c, node); err == nil &&
			(node == "" || pv.Spec.ClaimRef.UID != c.UID || pv.Spec.ClaimRef.Name != c.Name || pv.Spec.ClaimRef.Namespace != c.Namespace || c.Spec.VolumeName != pv.Name) {
			t.Errorf("a chain holds from %s to %s", volume, bound)
		} else if err != nil && len(err.Error()) > 4096+len(pv.Name)+len(c.Name)+len(c.Namespace)+len(volume) {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
		if open := isOpen(&c); open != isOpen(stripClaim(&c)) || sourceOf(&c) != sourceOf(stripClaim(&c)) && open {
			t.Errorf("the watch keeps another claim of %s", bound)
		}
		if lost := pending.LostSource(&c); lost && (pending.SnapshotOf(&c) != "" || pending.ClonedFrom(&c) != "") || lost != pending.LostSource(stripClaim(&c)) && c.Size() <= api.MaxObject {
			t.Errorf("the source of %s is lost: %t", bound, lost)
		}
		resizeTarget(&c)
		pending.MayBind(&pv, &c)
	})
}

// FuzzContents checks the same for contents and snapshots.
func FuzzContents(f *testing.F) {
	c, s := kubetest.ContentOf("a", "uid", kubetest.SnapshotHandle("uid")), &kubeclient.Snapshot{}
	s.Namespace, s.Name, s.UID, s.Status.Content = "ns", "nightly", "uid", "a"
	first, err := json.Marshal(c)
	must(f, err)
	second, err := json.Marshal(s)
	must(f, err)
	f.Add(first, second)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var c kubeclient.Content
		var s kubeclient.Snapshot
		if json.Unmarshal(first, &c) != nil || json.Unmarshal(second, &s) != nil {
			return
		}
		if err := kubeclient.SnapshotChain(&c, &s, "node-1"); err == nil && (c.Spec.VolumeSnapshotRef.UID != s.UID || s.Status.Content != c.Name || s.UID == "") {
			t.Errorf("a chain holds from %s to %s", first, second)
		}
		byHand, matters := keepUnlabelled(&c)
		if again, still := keepUnlabelled(stripUnlabelled(&c)); again != byHand || still != matters {
			t.Errorf("the watch keeps %+v of %+v", again, byHand)
		}
		of := lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName("snapshot-uid")}
		if err := kubeclient.RestoreChain(kubetest.Claim("copy", "thin", ""), &s, &c, "node-1", of); err == nil &&
			(c.Status.SnapshotHandle != of.String() || !kubeclient.OwnsSnapshot(&c, of) && !kubeclient.OwnsMember(&c, &s, of) || kubeclient.SnapshotChain(&c, &s, "node-1") != nil) {
			t.Errorf("%s is restored from %s and %s", of, first, second)
		}
		if kubeclient.HasSnapshot(&c, of) && c.Spec.Driver != api.DriverName {
			t.Errorf("another driver's content refers to a snapshot: %s", first)
		}
		_ = c.DeepCopyObject()
	})
}

// FuzzEvents: with arbitrary names and texts, an event has a name and a message that the API server accepts.
func FuzzEvents(f *testing.F) {
	f.Add("ns", "data", "uid", "a message")
	f.Add("", "web-0.example", "", "\xff\xfe")
	f.Fuzz(func(t *testing.T, namespace, name, uid, message string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return // no object can have that name
		}
		e := (&kubeclient.EventRecorder{}).Object(kubeclient.Event{About: kubeclient.AboutClaim(namespace, name, types.UID(uid)), Kind: corev1.EventTypeNormal, Reason: "Reason", Message: message}, time.Now())
		if wrong := validation.IsDNS1123Subdomain(e.Name); len(wrong) > 0 || len(e.Message) > 1024 || !utf8.ValidString(e.Message) {
			t.Errorf("%s: %v, %d bytes: %q", e.Name, wrong, len(e.Message), e.Message)
		}
	})
}

// FuzzClaimStatus: with an arbitrary claim status, the driver can record the next step of an expansion, keeps the
// conditions of others, and recognises the step as done.
func FuzzClaimStatus(f *testing.F) {
	for _, c := range []*corev1.PersistentVolumeClaim{
		growing("2Gi", "", ""), growing("2Gi", "9Gi", corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeError),
		growing("3Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible, "Unused"),
	} {
		text, err := json.Marshal(c)
		must(f, err)
		f.Add(text, "no room", true)
	}
	f.Add([]byte(`{"spec": {"resources": {"requests": {"storage": "-1"}}}, "status": {"allocatedResources": {"storage": "1e99"}}}`), "", false)
	f.Fuzz(func(t *testing.T, text []byte, why string, infeasible bool) {
		var c corev1.PersistentVolumeClaim
		if json.Unmarshal(text, &c) != nil {
			return
		}
		target, ok := resizeTarget(&c)
		if !ok {
			return
		}
		for _, p := range []kubeclient.Patch{begunPatch(&c, target), failedPatch(&c, infeasible, why), grownPatch(&c, target, true), grownPatch(&c, target, false)} {
			list := p.Status["conditions"].([]corev1.PersistentVolumeClaimCondition)
			for _, other := range c.Status.Conditions {
				if !slices.Contains(resizeConditions, other.Type) && !slices.Contains(list, other) {
					t.Errorf("the condition %+v is lost", other)
				}
			}
			if _, err := json.Marshal(p.Status); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		}
		failed := c.DeepCopy()
		failed.Status.Conditions = conditions(&c, corev1.PersistentVolumeClaimControllerResizeError, why)
		if infeasible {
			failed.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
				corev1.ResourceStorage: corev1.PersistentVolumeClaimControllerResizeInfeasible}
		}
		if state := resizeState(failed); infeasible == (state == corev1.PersistentVolumeClaimControllerResizeInfeasible) && !saysFailed(failed, infeasible, why) {
			t.Errorf("the same failure is reported again: %s", text)
		}
	})
}

// FuzzGather: gather finds exactly the connected claims, whichever pods share claims, and each of these finds the same
// ones.
func FuzzGather(f *testing.F) {
	f.Add("x: a b\ny: b c\nz: c d")
	f.Add("x: a nfs\ny: nfs b\nz: a Bound\nw: Bound c")
	f.Add("x: a gone-1 a\ny: gone-1 b\n: \n:a")
	f.Fuzz(func(t *testing.T, text string) {
		var pods []waitingPod
		all := map[string]bool{}
		for line := range strings.Lines(text) {
			name, uses, _ := strings.Cut(strings.TrimSpace(line), ":")
			claims := slices.Compact(slices.Sorted(slices.Values(strings.Fields(uses))))
			pods = append(pods, waitingPod{name: name, created: metav1.NewTime(time.Unix(int64(len(pods)), 0)), claims: claims})
			for _, c := range claims {
				all[c] = true
			}
		}
		if len(pods) > 100 {
			return
		}
		for asked := range all {
			company := gathered(t, pods, asked)
			together := map[string]bool{asked: true}
			for _, s := range company.Claims {
				if together[s.Name] || !isOurs(s.Name) {
					t.Errorf("%s: twice, or not of this driver: %+v", asked, s)
				}
				together[s.Name] = true
			}
			if len(all) > gatherMost {
				continue
			}
			want := connectedWith(pods, asked)
			for name := range all {
				if together[name] != want[name] {
					t.Errorf("%q: placed with %q is %q: %t, want %t", text, asked, name, together[name], want[name])
				}
			}
		}
	})
}

// The prefix of a claim's name says what it is: "nfs" for another driver, "gone" for missing, "B" for bound.
func isOurs(name string) bool {
	return !strings.HasPrefix(name, "nfs") && !strings.HasPrefix(name, "gone")
}

func connects(name string) bool { return isOurs(name) && !strings.HasPrefix(name, "B") }

func gathered(t *testing.T, pods []waitingPod, asked string) api.PodClaims {
	g := &gathering{claim: asked, pods: hardestFirst(pods, asked),
		find: func(_ context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
			if strings.HasPrefix(name, "gone") {
				return nil, nil
			}
			return kubetest.Claim(name, "late", ""), nil
		},
		as: func(_ context.Context, c *corev1.PersistentVolumeClaim) (api.PodClaim, bool, error) {
			return api.PodClaim{Name: c.Name, Bound: strings.HasPrefix(c.Name, "B")}, isOurs(c.Name), nil
		}}
	company, err := g.run(t.Context())
	must(t, err)
	return company
}

// connectedWith computes what gather must find, by repeating the search until it finds nothing more.
func connectedWith(pods []waitingPod, asked string) map[string]bool {
	found := map[string]bool{asked: true}
	for before := 0; before < len(found); {
		before = len(found)
		for _, pod := range pods {
			if slices.ContainsFunc(pod.claims, func(c string) bool { return found[c] && (c == asked || connects(c)) }) {
				for _, c := range pod.claims {
					if isOurs(c) {
						found[c] = true
					}
				}
			}
		}
	}
	return found
}
