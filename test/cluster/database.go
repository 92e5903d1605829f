package cluster

import "context"

// QueryIn asks the database of a pod, again while it is still starting up.
func (c *Cluster) QueryIn(ctx context.Context, pod, sql string) (answer string, err error) {
	err = Eventually(ctx, func() error {
		answer, err = c.ExecInPod(ctx, pod, "psql", "-qtA", "-c", sql, "postgres")
		return err
	})
	return answer, err
}
