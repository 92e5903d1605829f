package dashboard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const testHost = "127.0.0.1:4711"

func newTestGuard() *guard {
	return &guard{host: testHost, token: "the-token", session: "the-session", cookie: "nodelvm-dashboard-4711", next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent) // reached
	})}
}

func serve(g http.Handler, change func(r *http.Request)) *http.Response {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+testHost+"/api/stream", nil)
	r.AddCookie(&http.Cookie{Name: "nodelvm-dashboard-4711", Value: "the-session"})
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result()
}

// TestDashboardGuard: a request reaches the dashboard only with the right host, origin and cookie.
func TestDashboardGuard(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *http.Request)
		want   int
	}{
		"the page itself":                {nil, http.StatusNoContent},
		"its origin":                     {func(r *http.Request) { r.Header.Set("Origin", "http://"+testHost) }, http.StatusNoContent},
		"localhost":                      {func(r *http.Request) { r.Host = "localhost:4711" }, http.StatusNoContent},
		"a name that DNS leads here":     {func(r *http.Request) { r.Host = "attacker.example:4711" }, http.StatusMisdirectedRequest},
		"no host":                        {func(r *http.Request) { r.Host = "" }, http.StatusMisdirectedRequest},
		"another port":                   {func(r *http.Request) { r.Host = "127.0.0.1:4712" }, http.StatusMisdirectedRequest},
		"another origin":                 {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:4712") }, http.StatusForbidden},
		"an origin without a name":       {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"another site":                   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"another port, says the browser": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"no cookie":                      {func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"a wrong cookie":                 {func(r *http.Request) { r.Header.Set("Cookie", "nodelvm-dashboard-4711=the-sessiom") }, http.StatusForbidden},
		"an empty cookie":                {func(r *http.Request) { r.Header.Set("Cookie", "nodelvm-dashboard-4711=") }, http.StatusForbidden},
		"another dashboard's cookie":     {func(r *http.Request) { r.Header.Set("Cookie", "nodelvm-dashboard-4712=the-session") }, http.StatusForbidden},
		"a change":                       {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"the token beside the page": {func(r *http.Request) {
			r.Header.Del("Cookie")
			r.URL.RawQuery = "token=the-token" // only / takes it
		}, http.StatusForbidden},
	} {
		if got := serve(newTestGuard(), c.change).StatusCode; got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
}

// TestDashboardToken: the printed URL works once, and sets a cookie that no script can read and no other site can send.
func TestDashboardToken(t *testing.T) {
	g := newTestGuard()
	visit := func(token string) *http.Response {
		return serve(g, func(r *http.Request) {
			r.Header.Del("Cookie")
			r.URL.Path, r.URL.RawQuery = "/", "token="+token
		})
	}
	if got := visit("the-tokem"); got.StatusCode != http.StatusForbidden || len(got.Cookies()) > 0 {
		t.Errorf("a wrong token: status %d, cookies %v", got.StatusCode, got.Cookies())
	}
	reply := visit("the-token")
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK || !strings.Contains(string(body), "0;url=/") {
		t.Errorf("status %d, %q, %v: the token stays in the address", reply.StatusCode, body, err)
	}
	if len(reply.Cookies()) != 1 {
		t.Fatalf("cookies %v, want one", reply.Cookies())
	}
	cookie := reply.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" {
		t.Errorf("cookie %+v", cookie)
	}
	if cookie.Value == "the-token" {
		t.Error("the cookie is the token: who reads the URL later has the cookie")
	}
	if got := serve(g, func(r *http.Request) { r.Header.Set("Cookie", cookie.Name+"="+cookie.Value) }).StatusCode; got != http.StatusNoContent {
		t.Errorf("with the cookie: status %d", got)
	}
	if got := visit("the-token"); got.StatusCode != http.StatusForbidden || len(got.Cookies()) > 0 {
		t.Errorf("the token a second time: status %d, cookies %v", got.StatusCode, got.Cookies())
	}
}

// TestDashboardPolicy: every answer, also a refusal, forbids inline scripts, and scripts of and requests to any other origin.
func TestDashboardPolicy(t *testing.T) {
	for _, change := range []func(r *http.Request){nil, func(r *http.Request) { r.Host = "attacker.example" }} {
		header := serve(newTestGuard(), change).Header
		csp := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("the policy %q lacks %q", csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "://") {
			t.Errorf("the policy %q permits inline code or another host", csp)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}
