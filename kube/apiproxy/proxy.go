package apiproxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
)

// Paths of the lists that the proxy filters: those of the whole cluster.
const (
	claimsPath    = "/api/v1/persistentvolumeclaims"
	volumesPath   = "/api/v1/persistentvolumes"
	snapshotsPath = "/apis/" + api.SnapshotGroup + "/v1/volumesnapshots"
)

// Proxy is an http.Handler.
type Proxy struct {
	node      string
	upstream  *url.URL
	transport http.RoundTripper // sends no credentials
	pass      *httputil.ReverseProxy
	log       *slog.Logger
	volumes   volumes
}

// New creates the proxy of one node. Of config it uses the API server's address and certificate authority, and no credentials.
func New(config *rest.Config, node string, log *slog.Logger) (*Proxy, error) {
	config = rest.AnonymousClientConfig(config)
	upstream, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return nil, fmt.Errorf("cannot determine the API server's address: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the API server: %w", err)
	}
	p := &Proxy{node: node, upstream: upstream, transport: transport, log: log}
	p.pass = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport:     transport,
		FlushInterval: -1, // of watches
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return p, nil
}

// ServeHTTP filters lists and watches of claims, PersistentVolumes and VolumeSnapshots, and forwards everything else. It refuses a
// request without a token, and protocol upgrades, which no sidecar needs.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") == "":
		http.Error(w, "send a bearer token: this proxy of the Kubernetes API has none", http.StatusUnauthorized)
	case r.Header.Get("Upgrade") != "":
		http.Error(w, "this proxy of the Kubernetes API does not upgrade connections", http.StatusBadRequest)
	case isFiltered(r):
		if err := p.filter(w, r); err != nil && r.Context().Err() == nil {
			p.log.WarnContext(r.Context(), "cannot pass on a list or watch to csi-provisioner, which retries", "path", r.URL.Path, "error", err)
		}
	default:
		p.pass.ServeHTTP(w, r)
	}
}

// isFiltered reports whether the answer is a list or watch that the proxy can read.
func isFiltered(r *http.Request) bool {
	encoding, accept := encodingOf(r.URL.Path), r.Header.Get("Accept")
	return r.Method == http.MethodGet && encoding != "" && strings.Contains(accept, encoding) && !strings.Contains(accept, ";as=")
}

// encodingOf returns the encoding in which csi-provisioner, and so the proxy, reads a filtered list; "": the proxy does not filter this path.
func encodingOf(path string) string {
	switch path {
	case claimsPath, volumesPath:
		return runtime.ContentTypeProtobuf
	case snapshotsPath:
		return runtime.ContentTypeJSON
	}
	return ""
}

// selection is the part of the API server's answer that concerns the node.
type selection interface {
	list(body io.Reader) ([][]byte, error)
	watch(w http.ResponseWriter, body io.Reader) error
}

func (p *Proxy) selectionOf(r *http.Request) selection {
	if r.URL.Path == snapshotsPath {
		return snapshotFilter{p.log}
	}
	return &filter{kind: kindOf(r.URL.Path), node: p.node, volumes: &p.volumes, log: p.log}
}

// startsOver reports whether the answer has all objects: it is the first part of a list, or a watch that starts with a list.
func startsOver(query url.Values) bool {
	if isWatch(query) {
		return query.Get("sendInitialEvents") == "true"
	}
	return query.Get("continue") == ""
}

// filter writes the part of the API server's answer that concerns the node.
func (p *Proxy) filter(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == claimsPath && (startsOver(r.URL.Query()) || !p.volumes.areKnown()) {
		if known, err := p.learnVolumes(w, r); !known || err != nil {
			return err
		}
	}
	encoding := encodingOf(r.URL.Path)
	answer, err := p.get(r, r.URL.Path, r.URL.RawQuery, encoding)
	if err != nil {
		http.Error(w, "the Kubernetes API does not answer: "+err.Error(), http.StatusBadGateway)
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), encoding) {
		return passOn(w, answer)
	}
	copyHeader(w.Header(), answer.Header)
	if isWatch(r.URL.Query()) {
		return p.selectionOf(r).watch(w, answer.Body)
	}
	return p.writeList(w, r, answer.Body)
}

// passOn writes an answer as it is.
func passOn(w http.ResponseWriter, answer *http.Response) error {
	copyHeader(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, err := io.Copy(w, answer.Body)
	return err
}

func (p *Proxy) writeList(w http.ResponseWriter, r *http.Request, body io.Reader) error {
	list, err := p.selectionOf(r).list(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return err
	}
	for _, part := range list {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// copyHeader copies the headers that do not depend on the length of the body.
func copyHeader(to, from http.Header) {
	for _, name := range []string{"Content-Type", "Cache-Control", "Audit-Id", "Warning", "Retry-After", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"} {
		if values := from.Values(name); len(values) > 0 {
			to[name] = values
		}
	}
}

// isWatch reports whether the API server treats the query as that of a watch.
func isWatch(query url.Values) bool {
	watch, err := strconv.ParseBool(query.Get("watch"))
	return err == nil && watch || query.Has("watch") && query.Get("watch") == ""
}

// get sends a request with the client's token.
func (p *Proxy) get(r *http.Request, path, query, encoding string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "", http.NoBody)
	if err != nil {
		return nil, err
	}
	to := *p.upstream
	to.Path, to.RawQuery = strings.TrimSuffix(to.Path, "/")+path, query
	out.URL, out.Host = &to, to.Host
	for _, name := range []string{"Authorization", "User-Agent"} {
		out.Header[name] = r.Header.Values(name)
	}
	out.Header.Set("Accept", encoding)
	return p.transport.RoundTrip(out)
}

// maxAnswer is more than the API server stores of one object, in bytes.
const maxAnswer = 8 << 20
