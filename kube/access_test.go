package kube

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// reviews is an API server that knows two tokens: "reader", whose account may get /metrics, and "other".
type reviews struct {
	access *Access
	asked  atomic.Int32 // TokenReviews
	down   atomic.Bool
	revoke atomic.Bool
	now    atomic.Int64 // Unix seconds
}

func newReviews(t *testing.T) *reviews {
	t.Helper()
	r := &reviews{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, req *http.Request) {
		r.asked.Add(1)
		var review authenticationv1.TokenReview
		if err := received(req, &review); err != nil || r.down.Load() {
			http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
			return
		}
		token := review.Spec.Token
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
		review.Status.Authenticated = token == "reader" && !r.revoke.Load() || token == "other"
		review.Status.User = authenticationv1.UserInfo{Username: token, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"e": {"v"}}}
		kubetest.Reply(w, http.StatusCreated, &review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := received(req, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s := review.Spec
		review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}
		review.Status.Allowed = s.User == "reader" && s.Groups[0] == "g" && s.Extra["e"][0] == "v" && s.ResourceAttributes == nil &&
			s.NonResourceAttributes.Path == "/metrics" && s.NonResourceAttributes.Verb == "get"
		kubetest.Reply(w, http.StatusCreated, &review)
	})
	server := httptest.NewServer(mux)
	client := kubetest.ClientOf(t, server)
	r.access = NewAccess(client)
	start := time.Now()
	r.access.now = func() time.Time { return start.Add(time.Duration(r.now.Load()) * time.Second) }
	return r
}

// received decodes a client's request in either encoding.
func received(r *http.Request, into runtime.Object) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	_, _, err = serializer.NewCodecFactory(kubeclient.NewScheme()).UniversalDeserializer().Decode(text, nil, into)
	return err
}

func (r *reviews) expect(t *testing.T, token, path string, want Decision, reviews int32) {
	t.Helper()
	got, err := r.access.Review(t.Context(), token, path)
	if err != nil || got != want || r.asked.Load() != reviews {
		t.Errorf("%s for %s: decision %v, %v after %d reviews, want %v after %d", token, path, got, err, r.asked.Load(), want, reviews)
	}
}

// TestReviewsAreCached: Access reviews a token once for each path until the cached decision expires, whatever it is.
func TestReviewsAreCached(t *testing.T) {
	r := newReviews(t)
	for range 3 {
		r.expect(t, "reader", "/metrics", Granted, 1)
	}
	for range 3 {
		r.expect(t, "other", "/metrics", Forbidden, 2)
	}
	for range 3 {
		r.expect(t, "nobody", "/metrics", Unauthenticated, 3)
	}
}

func TestReviewCoversOnePath(t *testing.T) {
	r := newReviews(t)
	r.expect(t, "reader", "/metrics", Granted, 1)
	r.expect(t, "reader", "/v1/status", Forbidden, 2)
}

// TestRevokedTokenIsRefused: a revoked right ends when the cached decision expires.
func TestRevokedTokenIsRefused(t *testing.T) {
	r := newReviews(t)
	r.expect(t, "reader", "/metrics", Granted, 1)
	r.revoke.Store(true)
	r.expect(t, "reader", "/metrics", Granted, 1)
	r.now.Store(int64(grantedFor / time.Second))
	r.expect(t, "reader", "/metrics", Unauthenticated, 2)
}

// TestAPIServerDown: while the API server is down, only recently granted tokens are accepted.
func TestAPIServerDown(t *testing.T) {
	r := newReviews(t)
	r.expect(t, "reader", "/metrics", Granted, 1)
	r.down.Store(true)
	r.expect(t, "reader", "/metrics", Granted, 1)
	if _, err := r.access.Review(t.Context(), "other", "/metrics"); err == nil {
		t.Error("an unknown token gets a decision without the API server")
	}
	r.now.Store(int64(grantedFor / time.Second))
	if decision, err := r.access.Review(t.Context(), "reader", "/metrics"); err == nil {
		t.Errorf("an old grant is %v without the API server", decision)
	}
	r.down.Store(false)
	if decision, err := r.access.Review(t.Context(), "reader", "/metrics"); err != nil || decision != Granted {
		t.Errorf("after the API server is back: %v, %v", decision, err)
	}
}

// TestRandomTokensGetNoReview: Access refuses random tokens without a review, and they displace no granted token.
func TestRandomTokensGetNoReview(t *testing.T) {
	r := newReviews(t)
	r.expect(t, "reader", "/metrics", Granted, 1)
	limited := 0
	for i := range 10 * tokensKept {
		if _, err := r.access.Review(t.Context(), fmt.Sprint("random-", i), "/metrics"); errors.Is(err, ErrTooManyReviews) {
			limited++
		}
	}
	if n := r.asked.Load(); n > 5*reviewsBurst || limited == 0 {
		t.Errorf("%d reviews of %d random tokens, %d refused without one", n, 10*tokensKept, limited)
	}
	before := r.asked.Load()
	r.expect(t, "reader", "/metrics", Granted, before)
	r.now.Store(int64(grantedFor / time.Second))
	r.expect(t, "reader", "/metrics", Granted, before+1)
}

// TestOneReviewAtATime: requests with one token share a review.
func TestOneReviewAtATime(t *testing.T) {
	r := newReviews(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if decision, err := r.access.Review(t.Context(), "reader", "/metrics"); err != nil || decision != Granted {
				t.Errorf("%v, %v", decision, err)
			}
		})
	}
	all.Wait()
	if n := r.asked.Load(); n > 3 {
		t.Errorf("%d reviews of one token", n)
	}
}
