package conformance

import (
	"context"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// encryptionKey is the Secret of the class encrypted.
const encryptionKey = `{"apiVersion": "v1", "kind": "List", "items": [
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nodelvm-conformance"}},
{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "nodelvm-conformance"}, "stringData": {"key": "0123456789abcdefGHIJKLMNOPqrstuv"}}]}`

// allowEncryption creates the Secret, and makes the admission policy accept every class, because the suite copies the class under
// names of its choice. The policy nodelvm-volume-class still compares the references of each volume with its class.
func allowEncryption(ctx context.Context, opt Options) error {
	c, err := cluster.New(opt.Lab, cluster.NewReporter(opt.Out))
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, encryptionKey, "apply", "-f", "-"); err != nil {
		return err
	}
	return c.SetPolicyVariable(ctx, "keyRefs", "true")
}
