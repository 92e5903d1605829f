package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestFlagsReference: docs/reference/flags.md has each flag with its default, and no other.
func TestFlagsReference(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	text, err := os.ReadFile("../../docs/reference/flags.md")
	check.Must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## `nodelvm-controller`\n")
	flags := 0
	rootCommand().Flags().VisitAll(func(f *pflag.Flag) {
		flags++
		value := f.DefValue
		if value == "" {
			value = "none"
		}
		if row := "\n| `--" + f.Name + "` | " + value + " |"; !strings.Contains(section, row) {
			t.Errorf("the page lacks the line%s", row)
		}
	})
	if rows := strings.Count(section, "\n| `--"); rows != flags {
		t.Errorf("the page has %d flags, the command %d", rows, flags)
	}
}

func TestInvalidFlags(t *testing.T) {
	for name, test := range map[string]struct {
		options options
		says    string
	}{
		"no namespace":     {options{grace: time.Minute}, "POD_NAMESPACE"},
		"too little grace": {options{namespace: "ns", grace: time.Second}, "--grace-period is 1s"},
		"valid":            {options{namespace: "ns", grace: leastGrace}, ""},
	} {
		if err := test.options.check(); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, test.says)
		}
	}
	missing := options{namespace: "ns", nodeGroups: filepath.Join(t.TempDir(), "missing")}
	if _, err := missing.readNodeGroups(); err == nil || !strings.Contains(err.Error(), "cannot read the node groups") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestPages(t *testing.T) {
	handler := newHTTPHandler()
	for path, says := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "process_resident_memory_bytes"} {
		reply := httptest.NewRecorder()
		handler.ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if reply.Code != http.StatusOK || !strings.Contains(reply.Body.String(), says) {
			t.Errorf("%s: %d, %q", path, reply.Code, reply.Body)
		}
	}
}

// TestRun: the process asks for its lease, and ends without an error when it is terminated.
func TestRun(t *testing.T) {
	asked := make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}]}", server.URL)
	check.Must(t, os.WriteFile(config, []byte(text), 0o600))
	t.Setenv("KUBECONFIG", config)
	ended := make(chan error)
	go func() {
		ended <- run(ctx, &options{namespace: "ns", grace: leastGrace, httpEndpoint: "127.0.0.1:0", logLevel: "error", logFormat: "json"})
	}()
	if path := <-asked; path != "/apis/coordination.k8s.io/v1/namespaces/ns/leases/nodelvm-controller" {
		t.Errorf("the first request is for %s", path)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
