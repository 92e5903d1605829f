package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// sharing returns an agent for a namespace with these pods ("name: claim claim") and all their claims, which are unbound
// and of class late unless change says otherwise.
func sharing(t *testing.T, change func(map[string]*corev1.PersistentVolumeClaim, map[string]any), pods ...string) (*Agent, func() []string) {
	t.Helper()
	list, claims, answers := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}, map[string]*corev1.PersistentVolumeClaim{}, map[string]any{}
	for _, line := range pods {
		name, uses, _ := strings.Cut(line, ": ")
		pod := podWith(name, 0, strings.Fields(uses)...)
		pod.Namespace, pod.UID = "ns", "pod-"+kubetest.TypesUID(name)
		list.Items = append(list.Items, pod)
		for _, c := range strings.Fields(uses) {
			claims[c] = kubetest.Claim(c, "late", "")
		}
	}
	change(claims, answers)
	answers["GET /api/v1/namespaces/ns/pods"] = list
	for name, c := range claims {
		answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/"+name] = c
	}
	client, sent := kubetest.RecordedClient(t, answers)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	for name, provisioner := range map[string]string{"late": api.DriverName, "network": "nfs.example.com"} {
		must(t, agent.classes.Add(kubetest.Class(name, provisioner, storagev1.VolumeBindingWaitForFirstConsumer)))
	}
	return agent, sent
}

// TestMissingClaimsAreBounded: a pod that names thousands of claims that do not exist costs few requests.
func TestMissingClaimsAreBounded(t *testing.T) {
	uses := "x: a b"
	for i := range 2000 {
		uses += fmt.Sprint(" missing-", i)
	}
	agent, sent := sharing(t, func(claims map[string]*corev1.PersistentVolumeClaim, _ map[string]any) {
		for name := range claims {
			if strings.HasPrefix(name, "missing-") {
				delete(claims, name)
			}
		}
	}, uses)
	found, err := agent.PodClaims(t.Context(), "ns", "a")
	if err != nil || len(found.Claims) != 1 || found.Claims[0].Name != "b" {
		t.Errorf("found %+v, %v", found, err)
	}
	if n := len(sent()); n > 2+missingMost { // the pods, claim b
		t.Errorf("%d requests", n)
	}
}

// TestPodsThatShareAClaim: each of the connected claims has all others as peers.
func TestPodsThatShareAClaim(t *testing.T) {
	plain := func(map[string]*corev1.PersistentVolumeClaim, map[string]any) {}
	now := metav1.Now()
	for name, test := range map[string]struct {
		pods   []string
		change func(claims map[string]*corev1.PersistentVolumeClaim, answers map[string]any)
		want   map[string]string // by the claim of the request
	}{
		"two pods, one claim": {[]string{"x: a b", "y: b c"}, plain, map[string]string{"a": "b ~c", "b": "a c", "c": "b ~a"}},
		"the one with more claims does not decide alone": {[]string{"x: a b", "y: b c d"}, plain,
			map[string]string{"a": "b ~c ~d", "b": "a c d", "c": "b d ~a"}},
		"over a third pod": {[]string{"x: a b", "y: b c", "z: c d", "other: e f"}, plain,
			map[string]string{"a": "b ~c ~d", "d": "c ~a ~b", "e": "f"}},
		"in a circle": {[]string{"x: a b", "y: b c", "z: c a"}, plain, map[string]string{"a": "b c", "b": "a c"}},
		"a network file system connects nothing": {[]string{"x: a nfs", "y: nfs b"},
			func(claims map[string]*corev1.PersistentVolumeClaim, _ map[string]any) {
				claims["nfs"] = kubetest.Claim("nfs", "network", "")
			},
			map[string]string{"a": "", "b": ""}},
		"a bound claim is the end": {[]string{"x: a b", "y: b c"},
			func(claims map[string]*corev1.PersistentVolumeClaim, answers map[string]any) {
				claims["b"] = kubetest.Claim("b", "late", "pvc-b")
				pv := kubetest.VolumeOn("node-2", "b")
				answers["GET /api/v1/persistentvolumes/pvc-b"] = pv
			}, map[string]string{"a": "b=node-2", "c": "b=node-2"}},
		"a claim that is being deleted connects nothing": {[]string{"x: a b", "y: b c"},
			func(claims map[string]*corev1.PersistentVolumeClaim, _ map[string]any) {
				claims["b"].DeletionTimestamp = &now
			},
			map[string]string{"a": "", "c": ""}},
	} {
		for asked, want := range test.want {
			agent, _ := sharing(t, test.change, test.pods...)
			company, err := agent.PodClaims(t.Context(), "ns", asked)
			must(t, err)
			if got := listed(company.Claims); got != want {
				t.Errorf("%s: the peers of %s are %q, want %q", name, asked, got, want)
			}
		}
	}
}

// listed formats claims: "name", "~name" for an indirect one, and "name=node" for a bound one.
func listed(claims []api.PodClaim) string {
	var names []string
	for _, c := range claims {
		name := c.Name
		if c.Indirect {
			name = "~" + name
		}
		if c.Bound {
			name += "=" + c.Node
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "~", "{"), strings.ReplaceAll(b, "~", "{"))
	})
	return strings.Join(names, " ")
}

// TestConnectedPodsShareOneName: the driver remembers refusals by that name.
func TestConnectedPodsShareOneName(t *testing.T) {
	for _, asked := range []string{"a", "b", "c", "d"} {
		agent, _ := sharing(t, func(map[string]*corev1.PersistentVolumeClaim, map[string]any) {}, "x: a b", "y: b c d")
		company, err := agent.PodClaims(t.Context(), "ns", asked)
		if err != nil || !slices.Equal(company.Pods, []string{"y", "x"}) || company.PodUID != "pod-y" {
			t.Errorf("%s: %+v, %v", asked, company, err)
		}
	}
}

// TestAnotherPodsEphemeralVolume: a claim with the name of a pod's generic ephemeral volume that was not created for it
// does not connect that pod.
func TestAnotherPodsEphemeralVolume(t *testing.T) {
	agent, _ := sharing(t, func(claims map[string]*corev1.PersistentVolumeClaim, answers map[string]any) {}, "x: a y-b", "z: c d")
	pods, err := agent.pods.waiting(t.Context(), "ns")
	must(t, err)
	pods = slices.Clone(pods)
	pods = append(pods, waitingPod{namespace: "ns", name: "y", uid: "pod-y", claims: []string{"y-b", "c", "d"}, ephemeral: []string{"y-b"}})
	for asked, want := range map[string]string{"a": "y-b", "c": "d"} {
		if company, err := agent.gather(t.Context(), pods, "ns", asked); err != nil || listed(company.Claims) != want {
			t.Errorf("the peers of %s are %q, %v; want %q", asked, listed(company.Claims), err, want)
		}
	}
}

// TestConnectedClaimsAreBounded: each request reads a bounded number of claims, because any number of pods may share a claim.
func TestConnectedClaimsAreBounded(t *testing.T) {
	var pods []string
	for i := range 200 {
		pods = append(pods, fmt.Sprintf("p%03d: shared own-%03d", i, i))
	}
	var first []string
	for i := range 60 {
		first = append(first, fmt.Sprintf("of-one-%02d", i))
	}
	pods = append(pods, "big: "+strings.Join(first, " "))
	agent, sent := sharing(t, func(map[string]*corev1.PersistentVolumeClaim, map[string]any) {}, pods...)
	for asked, most := range map[string]int{"shared": gatherMost + 1, "own-199": gatherMost + 1, "of-one-00": len(first) - 1} {
		before := len(sent())
		company, err := agent.PodClaims(t.Context(), "ns", asked)
		if requests := len(sent()) - before; err != nil || len(company.Claims) != most || requests != 1+most {
			t.Errorf("%s: %d claims, %d requests, %v; want %d", asked, len(company.Claims), requests, err, most)
		}
	}
}
