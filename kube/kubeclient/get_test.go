package kubeclient_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestGetOfImpossibleName: tenants write names into claims and pods. One that no object can have is missing, without a request.
func TestGetOfImpossibleName(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, nil)
	for _, name := range []string{"", ".", "..", "a/b", "../secrets/key", "A", "a_b", "a%2fb", "\u00e9", strings.Repeat("a", 254), strings.Repeat("\u00e9", 180_000)} {
		if claim, err := client.Claim(t.Context(), "ns", name); claim != nil || err != nil {
			t.Errorf("the claim %.40q: %v, %v", name, claim, err)
		}
		if claim, err := client.Claim(t.Context(), name+"!", "data"); claim != nil || err != nil {
			t.Errorf("the namespace %.40q: %v, %v", name+"!", claim, err)
		}
	}
	if len(sent()) > 0 {
		t.Errorf("%d requests, the first of %d bytes", len(sent()), len(sent()[0]))
	}
	if _, err := client.Claim(t.Context(), "ns", "data.1-2"); err != nil || len(sent()) != 1 {
		t.Errorf("a claim that may exist: %v, %q", err, sent())
	}
}

// TestAbsenceIsTheAPIServersWord: a proxy's 404 proves that no node is lost, and no claim gone. An API server without a custom resource writes one, too.
func TestAbsenceIsTheAPIServersWord(t *testing.T) {
	client := kubetest.ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "default backend - 404", http.StatusNotFound)
	})))
	if node, err := client.Node(t.Context(), "node-1"); err == nil || apierrors.IsNotFound(err) || node != nil {
		t.Errorf("node %v, %v", node, err)
	}
	if content, err := client.Content(t.Context(), "snapcontent-1"); err != nil || content != nil {
		t.Errorf("content %v, %v", content, err)
	}
	scheme := kubeclient.NewScheme()
	status := apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, "node-1").Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	text, err := runtime.Encode(protobuf.NewSerializer(scheme, scheme), &status)
	check.Must(t, err)
	server := kubetest.ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(text) // the client may have closed the connection
	})))
	if node, err := server.Node(t.Context(), "node-1"); err != nil || node != nil {
		t.Errorf("the API server's word: node %v, %v", node, err)
	}
}
