package kube

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// FuzzClaimStatus: with an arbitrary claim status, the driver can record the next step of an expansion, keeps the
// conditions of others, and recognises the step as done.
func FuzzClaimStatus(f *testing.F) {
	for _, c := range []*corev1.PersistentVolumeClaim{
		growing("2Gi", "", ""), growing("2Gi", "9Gi", corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeError),
		growing("3Gi", "2Gi", corev1.PersistentVolumeClaimNodeResizeInfeasible, "Unused"),
	} {
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
