package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// servicesNames are the processes that UpOptions.Services adds to the control plane.
var servicesNames = []string{"serviceproxy", "coredns"}

// coreDNSMain is CoreDNS with the plugins of corefile: its own command has the libraries of many clouds.
const coreDNSMain = `package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
)

func main() { coremain.Run() }
`

// coreDNSModule returns the module of CoreDNS.
func coreDNSModule(v versions) module {
	m := module{
		name: "coredns", path: "github.com/coredns/coredns", version: v["COREDNS_VERSION"],
		main: coreDNSMain, commands: map[string]string{"coredns": "lab.test/coredns"},
	}
	for _, name := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"} { // compiled already
		m.replace = append(m.replace, name+" => "+name+" "+v[sidecarsStaging])
	}
	return m
}

// compileServices adds the commands of servicesNames to bin. It compiles CoreDNS unless the cache has it.
func (l *Lab) compileServices(ctx context.Context, bin binaries) error {
	if err := l.versions.need("COREDNS_VERSION"); err != nil {
		return err
	}
	m := coreDNSModule(l.versions)
	dir, err := l.compileModule(ctx, m, func(int) {})
	if err != nil {
		return fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
	}
	bin["coredns"] = filepath.Join(dir, "coredns")
	bin["serviceproxy"] = filepath.Join(l.dir, "bin", "serviceproxy")
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false"}
	return l.toolIn(ctx, "compile-serviceproxy", filepath.Join(l.checkout, "test"), env, "go", "build", "-trimpath", "-o", bin["serviceproxy"], "./cmd/serviceproxy")
}

// corefile answers for the cluster's names, and refuses all others at once.
const corefile = `.:53 {
	bind %s
	errors
	kubernetes cluster.local in-addr.arpa ip6.arpa {
		kubeconfig %s
		ttl 5
	}
	loadbalance
}
`

// startServices starts CoreDNS, and the proxy that gives the bridge the addresses of all Services.
func (l *Lab) startServices(bin binaries) error {
	kubeconfig, config := l.pki("services.kubeconfig"), filepath.Join(l.systemDir(), "Corefile")
	if err := os.WriteFile(config, fmt.Appendf(nil, corefile, dnsIP, kubeconfig), 0o600); err != nil {
		return err
	}
	for _, d := range []daemon{
		{name: "serviceproxy", core: -1, argv: []string{bin["serviceproxy"], "--kubeconfig=" + kubeconfig, "--device=br0"}},
		{name: "coredns", core: -1, argv: []string{bin["coredns"], "-conf", config}},
	} {
		if err := l.startDaemon(d); err != nil {
			return err
		}
	}
	return nil
}
