package cluster

import "context"

// QueryIn runs a query in the database of a pod. It repeats the query while it fails, as it does while the database starts.
func (c *Cluster) QueryIn(ctx context.Context, pod, sql string) (answer string, err error) {
	err = Eventually(ctx, func() error {
		answer, err = c.ExecInPod(ctx, pod, "psql", "-qtA", "-c", sql, "postgres")
		return err
	})
	return answer, err
}
