package dashboard

import (
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net/http"
	"strings"
	"sync"
)

// The page is on a loopback address, which every program of the machine and every page in the user's browser can reach. The first
// browser that opens the printed URL exchanges its token for a cookie; the token is then of no use to whoever finds it in a
// history or a list of processes.

// newToken returns a random text that cannot be guessed.
func newToken() string { return rand.Text() + rand.Text() }

// policy lets the page load its own files, and nothing else. No text can become HTML: trusted types are required, and no policy
// creates them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard admits requests of the page alone.
type guard struct {
	host    string // address and port
	cookie  string // its name has the port: cookies of one address share all ports
	session string // the cookie's value
	next    http.Handler

	mu    sync.Mutex
	token string // of the printed URL; "" once it was used
}

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
	cookie, err := r.Cookie(g.cookie)
	known := err == nil && same(cookie.Value, g.session)
	switch given := r.URL.Query().Get("token"); {
	case r.URL.Path == "/" && given != "" && (known || g.exchange(given)):
		http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, enter) // the browser is gone
	case !known:
		http.Error(w, "the URL was opened before, or is not that of this dashboard. Each can be opened in one browser: open it there, or run kubectl nodelvm dashboard again", http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// enter leads to the page's address without the token. Not a redirect: after a link from another site, a browser follows a redirect
// without the new cookie.
const enter = `<!DOCTYPE html><html lang="en"><title>nodelvm</title><meta http-equiv="refresh" content="0;url=/">`

// exchange takes the token, once.
func (g *guard) exchange(given string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !same(given, g.token) {
		return false
	}
	g.token = ""
	return true
}

// refuse returns a status code for a request that no page of this server sends: a name that an attacker's DNS leads here, a page
// of another origin, a method that changes something.
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
		if r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" { // a link to the URL may be anywhere
			return "the request is of another site", http.StatusForbidden
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "the dashboard changes nothing", http.StatusMethodNotAllowed
	}
	return "", 0
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
