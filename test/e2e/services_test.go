//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/lab"
)

// servers are a pod on the second node, its Service, and a pod on the first node that asks it by name.
const servers = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: node-2
  containers:
  - {name: web, image: registry.k8s.io/e2e-test-images/busybox:1.37.0-2, command: [sh, -c, "mkdir /www; echo from the other node >/www/index.html; httpd -f -p 8080 -h /www"]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 443, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: node-1
  containers:
  - {name: client, image: "docker.io/library/postgres:17", command: [sleep, infinity]} # the lab's static busybox cannot look names up
`

// TestServices: in a lab with Services, a pod reaches one of another node by its Service's name, and so does the API server by its address, as a
// webhook. The port is that of the API server itself.
func TestServices(t *testing.T) {
	l := raise(t, "services", lab.UpOptions{Nodes: 2, ControlPlane: true, Services: true})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit(5*time.Minute))
	defer cancel()
	run := func(stdin string, argv ...string) (string, error) {
		var out bytes.Buffer
		err := l.Kubectl(ctx, strings.NewReader(stdin), &out, &out, argv...)
		return strings.TrimSpace(out.String()), err
	}
	if said, err := run(servers, "apply", "-f", "-"); err != nil {
		t.Fatal(err, said)
	}
	expect := func(what string, ask func() (string, error)) {
		t.Helper()
		var said string
		var err error
		if !wait.Holds(wait.Limit(2*time.Minute), func() bool {
			said, err = ask()
			return err == nil && said == "from the other node"
		}) {
			t.Errorf("%s: %v, %q", what, err, said)
		}
	}
	const ask = `exec 3<>/dev/tcp/$0/443 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3`
	expect("a pod asks the Service by its name", func() (string, error) {
		return run("", "exec", "client", "--", "timeout", "5", "bash", "-c", ask, "web.default.svc.cluster.local")
	})
	expect("the API server's namespace asks the Service by its address", func() (string, error) {
		address, err := run("", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		if err != nil {
			return address, err
		}
		var out bytes.Buffer
		err = l.Run(ctx, nil, &out, &out, "bash", "-c", ask, address)
		return strings.TrimSpace(out.String()), err
	})
}
