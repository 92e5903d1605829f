package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// RESTConfig returns a client-go configuration for the cluster's admin. It opens connections inside the lab's network namespace, so
// it works in any process on the machine.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	if _, err := l.clusterState(); err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: fmt.Sprintf("https://%s:%d", serviceIP, apiPort),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: l.pki("ca.crt"), CertFile: l.pki("admin.crt"), KeyFile: l.pki("admin.key"),
		},
		Dial:  l.dial,
		QPS:   200,
		Burst: 400,
	}, nil
}

// clusterState is loadState, but fails for a lab without Kubernetes.
func (l *Lab) clusterState() (state, error) {
	st, err := l.loadState()
	if err == nil && !st.ControlPlane {
		err = errors.New("this lab has no Kubernetes: it was raised for tests of LVM alone")
	}
	return st, err
}

// unversioned prepares a configuration for requests to plain paths.
func unversioned(c *rest.Config) *rest.Config {
	c.GroupVersion = &schema.GroupVersion{}
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return c
}

// Kubeconfig returns the admin's kubeconfig for programs that run inside the lab's network namespace.
func (l *Lab) Kubeconfig() string { return l.pki("admin.kubeconfig") }

// Kubectl runs kubectl as the cluster's admin. If kubectl itself fails, the error is an *exec.ExitError.
func (l *Lab) Kubectl(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
	st, err := l.clusterState()
	if err != nil {
		return err
	}
	return l.runCommand(l.command(ctx, stdin, stdout, stderr, append([]string{st.Binaries["kubectl"]}, args...)...))
}

// Run runs a program of the host inside the lab's network namespace, with KUBECONFIG set to the admin's kubeconfig. The end of ctx
// kills its children, too.
func (l *Lab) Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, argv ...string) error {
	cmd := l.command(ctx, stdin, stdout, stderr, argv...)
	killGroup(cmd)
	return l.runCommand(cmd)
}

func (l *Lab) command(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	return cmd
}

// runCommand runs cmd inside the lab's network namespace.
func (l *Lab) runCommand(cmd *exec.Cmd) error {
	if err := l.inNamespace(-1, cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// Binaries returns the files of the compiled commands by name. It first compiles what the cache lacks.
func (l *Lab) Binaries(ctx context.Context) (map[string]string, error) {
	if err := os.MkdirAll(l.Logs(), 0o755); err != nil {
		return nil, err
	}
	return l.compile(ctx, func(int, int, string) {})
}

// SnapshotCRDs returns the files with the CustomResourceDefinitions of snapshots and of group snapshots.
func (l *Lab) SnapshotCRDs(ctx context.Context) ([]string, error) {
	bin, err := l.Binaries(ctx)
	if err != nil {
		return nil, err
	}
	return snapshotCRDs(ctx, bin)
}
