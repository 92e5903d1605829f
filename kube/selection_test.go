package kube

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestSelectedNodeThatDoesNotExist: a claim whose selected node does not exist returns to the scheduler after minutes; one whose node exists
// costs a request in ten minutes.
func TestSelectedNodeThatDoesNotExist(t *testing.T) {
	populated := &corev1.TypedObjectReference{APIGroup: ptr.To("volsync.backube"), Kind: "ReplicationDestination", Name: "r"}
	for name, test := range map[string]struct {
		change   func(c *corev1.PersistentVolumeClaim)
		exists   bool
		class    string // the provisioner
		returned bool
		reads    int // of the node, at most, in half an hour
		refused  bool
	}{
		"the node does not exist":                 {func(*corev1.PersistentVolumeClaim) {}, false, api.DriverName, true, 1, false},
		"no node can have that name":              {func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationSelectedNode] = "../a" }, false, api.DriverName, true, 0, false},
		"the node exists":                         {func(*corev1.PersistentVolumeClaim) {}, true, api.DriverName, false, 4, false},
		"a populated claim":                       {func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSourceRef = populated }, false, api.DriverName, true, 1, false},
		"a claim with a selector":                 {func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, false, api.DriverName, true, 1, false},
		"no node is selected":                     {func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false, api.DriverName, false, 0, false},
		"the claim is bound":                      {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "pvc-1", corev1.ClaimBound }, false, api.DriverName, false, 0, false},
		"the claim is of another driver":          {func(*corev1.PersistentVolumeClaim) {}, false, "ebs.csi.aws.com", false, 0, false},
		"the claim is deleted, or changed":        {func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = "gone" }, false, api.DriverName, false, 8, false},
		"Kubernetes assigned it to no driver yet": {func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, api.AnnotationStorageProvisioner) }, false, api.DriverName, false, 0, false},
		"a tenant assigned it to another driver":  {func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationStorageProvisioner] = "x" }, false, api.DriverName, false, 0, false},
		"the API server refuses":                  {func(*corev1.PersistentVolumeClaim) {}, false, api.DriverName, false, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests []string
				answer := func(code int, body any) (*http.Response, error) {
					recorder := httptest.NewRecorder()
					kubetest.Reply(recorder, code, body)
					return recorder.Result(), nil
				}
				client, err := kubeclient.NewClientFor(&rest.Config{Host: "http://api", Transport: trip(func(r *http.Request) (*http.Response, error) {
					requests = append(requests, r.Method+" "+r.URL.Path)
					body := ""
					if r.Body != nil {
						text, _ := io.ReadAll(r.Body)
						body = string(text)
					}
					switch {
					case r.Method == http.MethodGet && test.exists:
						return answer(http.StatusOK, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-9"}})
					case r.Method == http.MethodGet:
						return answer(http.StatusNotFound, metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
					case r.Method == http.MethodPatch && test.refused:
						return answer(http.StatusForbidden, metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
					case r.Method == http.MethodPatch && strings.Contains(body, `"gone"`):
						return answer(http.StatusConflict, metav1.Status{Reason: metav1.StatusReasonConflict, Code: http.StatusConflict})
					case r.Method == http.MethodPatch && !strings.Contains(body, `{"volume.kubernetes.io/selected-node":null}`):
						t.Errorf("the patch is %s", body)
					}
					return answer(http.StatusCreated, kubetest.Claim("data", "late", ""))
				})})
				must(t, err)
				agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
				defer agent.queue.ShutDown()
				_ = agent.classes.Add(kubetest.Class("late", test.class, late)) // Add never fails
				claim := kubetest.Claim("data", "late", "")
				claim.Annotations = map[string]string{api.AnnotationSelectedNode: "node-9", api.AnnotationStorageProvisioner: api.DriverName}
				test.change(claim)
				_ = agent.claims.Add(claim)
				returned := func() bool {
					return strings.Contains(strings.Join(requests, "\n"), "POST /api/v1/namespaces/ns/events")
				}
				for minute := range 30 {
					for agent.queue.Len() > 0 {
						agent.next(t.Context())
					}
					if minute == 0 && returned() {
						t.Error("at once")
					}
					if returned() {
						break // the watch would bring the new version
					}
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				reads := strings.Count(strings.Join(requests, "\n"), "GET ")
				if returned() != test.returned || reads > test.reads || test.reads > 0 && reads == 0 {
					t.Errorf("returned: %t; requests %q", returned(), requests)
				}
			})
		})
	}
}

// TestNodesCheckSelectionsInTurn: the first node returns the claim, so that the others send no request.
func TestNodesCheckSelectionsInTurn(t *testing.T) {
	const nodes = 100
	quarters := [4]int{}
	for n := range nodes {
		turn := (&Agent{node: fmt.Sprintf("node-%d", n)}).turnOf(kubetest.Claim("data", "late", ""))
		if turn < 0 || turn >= selectionApart {
			t.Fatalf("node-%d checks after %s", n, turn)
		}
		quarters[4*turn/selectionApart]++
	}
	for quarter, count := range quarters {
		if count < nodes/10 {
			t.Errorf("of %d nodes %d check in quarter %d of %s", nodes, count, quarter+1, selectionApart)
		}
	}
}
