package capacity

import (
	"context"
	"path"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// failedCreates counts the CreateVolume calls that did not end well on all nodes. It reads the metrics again where a driver does not
// answer: a node may be busy.
func failedCreates(ctx context.Context, env *scenario.Environment) (all float64, err error) {
	err = cluster.Eventually(ctx, func() error {
		pods, err := env.NodePods(ctx)
		all = 0
		for _, pod := range pods {
			text, err := env.DriverPage(ctx, pod.Name, "/metrics")
			if err != nil {
				return err
			}
			failed, err := failedIn(text)
			if err != nil {
				return err
			}
			all += failed
		}
		return err
	})
	return all, err
}

// failedIn reads them from one driver's metrics.
func failedIn(metrics string) (n float64, err error) {
	err = scenario.EachSample(metrics, func(name, labels string, value float64) {
		call := path.Base(scenario.MetricLabel(labels, "method_name"))
		if name == "csi_plugin_operations_seconds_count" && call == "CreateVolume" && scenario.MetricLabel(labels, "grpc_status_code") != "OK" {
			n += value
		}
	})
	return n, err
}
