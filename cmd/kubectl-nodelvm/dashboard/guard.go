package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net/http"
	"strings"
	"sync"
)

// The page has a loopback address, which every program of the machine and every page in the user's browser can reach. The page itself
// is public and has no data. The first page that has the token of the printed URL exchanges it for the session, which it sends with
// each request for data. A token that is later found in a history or a list of processes is no longer valid.
//
// The session is no cookie: a browser sends the cookies of 127.0.0.1 to every port of it (RFC 6265, section 8.5), also to a server of
// another user. The page keeps it in the browser's storage, which is apart for each port.

// newToken returns a random text that no program can guess.
func newToken() string { return rand.Text() + rand.Text() }

// policy lets the page load only its own files. No text can become HTML: the policy requires trusted types, and allows no policy
// that creates them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard admits only requests of the page.
type guard struct {
	host    string // address and port
	session string
	next    http.Handler

	mu    sync.Mutex
	token string // of the printed URL; "" after its first use
}

// Parameters of the page's requests.
const (
	tokenField   = "token"
	sessionField = "session"
)

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if why, code := g.refuse(r); code != 0 {
		http.Error(w, why, code)
		return
	}
	g.next.ServeHTTP(w, r)
}

// begin serves the session in exchange for the token.
func (g *guard) begin(w http.ResponseWriter, r *http.Request) {
	if !g.exchange(r.URL.Query().Get(tokenField)) {
		http.Error(w, notOpen, http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, g.session) // the page is gone
}

// data serves requests that have the session.
func (g *guard) data(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !same(r.URL.Query().Get(sessionField), g.session) {
			http.Error(w, notOpen, http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

const notOpen = "The URL was opened before, or is not that of this dashboard. Each can be opened in one browser: open it there, or run kubectl nodelvm dashboard again."

// exchange reports whether the token is right, and accepts it only once.
func (g *guard) exchange(given string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !same(given, g.token) {
		return false
	}
	g.token = ""
	return true
}

// refuse returns a status code for a request that no page of this server sends. Its host name is one that an attacker's DNS
// resolves to this address, its page has another origin, or its method changes something. Otherwise code is 0.
func (g *guard) refuse(r *http.Request) (why string, code int) {
	_, port, _ := strings.Cut(g.host, ":")
	if r.Host != g.host && r.Host != "localhost:"+port {
		return "the Host header is not this dashboard's address", http.StatusMisdirectedRequest
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "the request is of another origin", http.StatusForbidden
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		if r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" { // any site may have a link to the URL
			return "the request is of another site", http.StatusForbidden
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "the dashboard changes nothing", http.StatusMethodNotAllowed
	}
	return "", 0
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
