package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

// SetPolicyVariable replaces the expression of a variable in the admission policy that restricts the nodes.
func (c *Cluster) SetPolicyVariable(ctx context.Context, name, expression string) error {
	const object = "validatingadmissionpolicy/nodelvm-node-restriction"
	text, err := c.Kubectl(ctx, "", "get", object, "-o", "json")
	if err != nil {
		return err
	}
	var policy struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return err
	}
	for i, v := range policy.Spec.Variables {
		if v.Name == name {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": fmt.Sprintf("/spec/variables/%d/expression", i), "value": expression}})
			if err != nil {
				return err
			}
			_, err = c.Kubectl(ctx, "", "patch", object, "--type=json", "-p", string(patch))
			return err
		}
	}
	return fmt.Errorf("%s has no variable %s", object, name)
}

// Diagnosis returns what may explain a failure: pods, claims and volumes, events, and the end of the driver's log.
func (c *Cluster) Diagnosis(ctx context.Context) string {
	ctx, cancel := CleanUpContext(ctx)
	defer cancel()
	text := ""
	for _, args := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "pvc,pv", "-A"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", DriverNamespace, "-l", "app.kubernetes.io/name=nodelvm", "--all-containers", "--prefix", "--tail=25"},
	} {
		out, err := c.Kubectl(ctx, "", args...)
		if err != nil {
			out += err.Error()
		}
		text += fmt.Sprintf("\n--- kubectl %v\n%s", args, Tail(out, 6000))
	}
	return text
}

func Tail(text string, most int) string {
	if len(text) > most {
		return "...\n" + text[len(text)-most:]
	}
	return text
}
