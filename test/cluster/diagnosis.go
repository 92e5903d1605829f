package cluster

import (
	"context"
	"fmt"
)

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
