package moves

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// phase is one of a claim's move, with its begin.
type phase struct {
	claim, name string
	from        time.Time
}

// watchPhases notes when the claims' statuses change their phases, until the function that it returns describes that.
func watchPhases(ctx context.Context, env *scenario.Environment) (func() string, error) {
	client, err := env.FastClient()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan []phase, 1)
	go func() {
		var all []phase
		last := map[string]string{}
		for ctx.Err() == nil {
			for _, claim := range claims {
				c, err := client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Get(ctx, claim, metav1.GetOptions{})
				if err != nil {
					continue
				}
				if s, ok := api.MoveStatusOf(c.Annotations); ok && s.Phase != last[claim] {
					last[claim] = s.Phase
					all = append(all, phase{claim, s.Phase, time.Now()})
				}
			}
			kubeclient.Sleep(ctx, 100*time.Millisecond)
		}
		done <- all
	}()
	begin := time.Now()
	return func() string {
		stop()
		return describe(<-done, begin)
	}, nil
}

// describe names the phases with their begins.
func describe(all []phase, begin time.Time) string {
	var parts []string
	for _, p := range all {
		parts = append(parts, fmt.Sprintf("%s %s after %.1f s", p.claim, p.name, p.from.Sub(begin).Seconds()))
	}
	return strings.Join(parts, ", ")
}
