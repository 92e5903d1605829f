package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Kubectl runs kubectl against the lab and returns its output. It repeats a run that did not reach the API server, or whose request
// the API server could not send to the kubelet.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (said string, err error) {
	late := Eventually(ctx, func() error {
		if said, err = c.kubectlOnce(ctx, stdin, args...); isNotSent(err) {
			return err
		}
		return nil
	})
	return said, cmp.Or(late, err)
}

func (c *Cluster) kubectlOnce(ctx context.Context, stdin string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	if err := c.Lab.Kubectl(ctx, strings.NewReader(stdin), &out, &errs, args...); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// notSent are messages of kubectl for requests without any effect: no command of an exec has started, no request was answered.
var notSent = []string{
	"Unable to connect to the server", "TLS handshake timeout", "etcdserver: request timed out",
	"error dialing backend", "error sending request", "unable to upgrade connection", // to a kubelet, or to a container that does not exist yet
}

func isNotSent(err error) bool {
	return err != nil && slices.ContainsFunc(notSent, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// ExecInPod runs a command in a pod's first container.
func (c *Cluster) ExecInPod(ctx context.Context, pod string, argv ...string) (string, error) {
	return c.Kubectl(ctx, "", append([]string{"exec", "-n", Namespace, pod, "--"}, argv...)...)
}
