package scenario

import (
	"context"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// RebootNode boots a node again, after what a shutdown leaves: everything written, every file system read-only. The kernel is only asked for that, and says
// when it is done.
func (env *Environment) RebootNode(ctx context.Context, node string) error {
	if _, err := env.RunOnNode(ctx, node, "sh", "-ec", "sync; echo u > /proc/sysrq-trigger"); err != nil {
		return err
	}
	readOnly := func() error {
		_, err := env.RunOnNode(ctx, node, "sh", "-c", "dmesg | grep 'Emergency Remount complete'")
		return err
	}
	if err := cluster.Eventually(ctx, readOnly); err != nil {
		return err
	}
	if err := env.Lab.PowerCut(node); err != nil {
		return err
	}
	return env.Lab.Boot(ctx, node)
}
