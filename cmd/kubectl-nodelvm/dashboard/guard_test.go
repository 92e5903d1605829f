package dashboard

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const testHost = "127.0.0.1:4711"

func newTestGuard() *guard {
	g := &guard{host: testHost, token: "the-token", session: "the-session"}
	g.next = (&Server{}).routes(g)
	return g
}

// serve requests the data of a guard whose data is the status 204.
func serve(g *guard, change func(r *http.Request)) *http.Response {
	mux := http.NewServeMux()
	mux.Handle("/", g.next)
	mux.HandleFunc("/api/stream", g.data(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })) // reached
	g = &guard{host: g.host, next: mux}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+testHost+"/api/stream?session=the-session", nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Result()
}

// TestDashboardGuard: a request reaches the data only with the right host, origin and session.
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
		"no session":                     {func(r *http.Request) { r.URL.RawQuery = "" }, http.StatusForbidden},
		"a wrong session":                {func(r *http.Request) { r.URL.RawQuery = "session=the-sessiom" }, http.StatusForbidden},
		"an empty session":               {func(r *http.Request) { r.URL.RawQuery = "session=" }, http.StatusForbidden},
		"a session in a cookie": {func(r *http.Request) {
			r.URL.RawQuery = ""
			r.AddCookie(&http.Cookie{Name: "session", Value: "the-session"})
		}, http.StatusForbidden},
		"another path to the data":          {func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "//api/events", "" }, http.StatusTemporaryRedirect},
		"a change":                          {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"the token in place of the session": {func(r *http.Request) { r.URL.RawQuery = "session=the-token" }, http.StatusForbidden},
	} {
		if got := serve(newTestGuard(), c.change).StatusCode; got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
}

// TestDashboardToken: the token of the printed URL gets the session once.
func TestDashboardToken(t *testing.T) {
	g := newTestGuard()
	visit := func(token string) (status int, body string) {
		reply := serve(g, func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "/api/session", "token="+token })
		content, err := io.ReadAll(reply.Body)
		if err != nil || len(reply.Cookies()) > 0 {
			t.Fatalf("%v, cookies %v", err, reply.Cookies())
		}
		return reply.StatusCode, string(content)
	}
	for _, wrong := range []string{"", "the-tokem", "the-session"} {
		if status, body := visit(wrong); status != http.StatusForbidden || strings.Contains(body, "the-") {
			t.Errorf("the token %q: status %d, %q", wrong, status, body)
		}
	}
	if status, body := visit("the-token"); status != http.StatusOK || body != "the-session" {
		t.Errorf("the token: status %d, %q", status, body)
	}
	if got := serve(g, nil).StatusCode; got != http.StatusNoContent {
		t.Errorf("with the session: status %d", got)
	}
	if status, _ := visit("the-token"); status != http.StatusForbidden {
		t.Errorf("the token a second time: status %d", status)
	}
}

// TestDashboardNeighbourPort: a server of another user on another port of 127.0.0.1 gets nothing of the session from the browser. A browser sends a
// host's cookies to all of its ports (RFC 6265, section 8.5), and SameSite=Strict does not see ports; net/http/cookiejar does the same.
func TestDashboardNeighbourPort(t *testing.T) {
	server, err := Listen(t.Context(), 0, Hello{}, NewCollector(&fakeSource{}, time.Hour))
	must(t, err)
	go func() { _ = server.Run(t.Context()) }()
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{Jar: jar}
	origin, token, _ := strings.Cut(server.URL, "/#token=")
	open := func(url string) (status int, body string) {
		reply := visit(t, browser, url)
		content, err := io.ReadAll(io.LimitReader(reply.Body, 100))
		must(t, err)
		return reply.StatusCode, string(content)
	}
	_, _ = open(server.URL)
	_, session := open(origin + "/api/session?token=" + token)
	if status, body := open(origin + "/api/stream?session=" + session); status != http.StatusOK || !strings.Contains(body, "event: reset") {
		t.Errorf("the page: status %d, %q", status, body)
	}
	headers := make(chan http.Header, 1)
	neighbour := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	defer neighbour.Close()
	_, _ = open(neighbour.URL + "/pixel.png")
	for name, values := range <-headers {
		if name == "Cookie" || strings.Contains(strings.Join(values, ""), session) {
			t.Errorf("the neighbour's server gets %s: %s", name, values)
		}
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
