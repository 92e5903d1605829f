package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
)

//go:embed files/install-runc.sh
var installRunc string

// UserNamespaces is the name of containerd's runtime handler that InstallRunc adds to a node.
const UserNamespaces = "userns"

// runcPackages are what this machine needs to compile runc: the kubelet gives each pod's sandbox a seccomp profile.
var runcPackages = map[string]string{"libseccomp-dev": "/usr/include/seccomp.h", "pkgconf": "/usr/bin/pkg-config"}

// runcModule returns the module of a runc that maps the ids of mounts; Debian's in the nodes is too old for that.
func runcModule(v versions) module {
	const path = "github.com/opencontainers/runc"
	return module{
		name: "runc", path: path, version: v["RUNC_VERSION"], commands: map[string]string{"runc": path},
		env: []string{"CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -mod=mod -tags=seccomp"}, ldflags: "-linkmode external -extldflags -static",
	}
}

// InstallRunc lets a node run pods with hostUsers: false, until it boots again, if their RuntimeClass has the handler UserNamespaces. It first compiles
// runc if the cache lacks it.
func (l *Lab) InstallRunc(ctx context.Context, node string) error {
	if err := errors.Join(l.versions.need("RUNC_VERSION"), os.MkdirAll(l.Logs(), 0o755), l.installHostPackages(ctx, runcPackages)); err != nil {
		return err
	}
	m := runcModule(l.versions)
	bin, err := l.compileModule(ctx, m, func(int) {})
	if err != nil {
		return fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
	}
	return l.run(ctx, node, "sh", "-ec", installRunc, "install", bin)
}
