package main

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

// TestMoves: with moves, the container nodelvm alone gets the port, the pod's address, and a token that the API server does not accept. Without them,
// and with older values, nothing of that is in the pod.
func TestMoves(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"default": {nil, false},
		"off":     {map[string]any{"move": map[string]any{"enabled": false, "rate": "100Mi"}}, false},
		"older":   {map[string]any{"move": nil}, false},
		"on":      {withMoves, true},
	} {
		pod := daemonSet(t, renderWith(t, c.values)).Spec.Template.Spec
		tokens := slices.DeleteFunc(slices.Clone(pod.Volumes), func(v core.Volume) bool { return v.Projected == nil })
		if (len(tokens) == 1) != c.want || c.want && (len(tokens[0].Projected.Sources) != 1 || tokens[0].Projected.Sources[0].ServiceAccountToken.Audience != "nodelvm.io/move") {
			t.Errorf("%s: tokens %+v", name, tokens)
		}
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			want := c.want && container.Name == "nodelvm"
			for what, has := range map[string]bool{
				"token": slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "move-token" && m.ReadOnly }),
				"address": slices.ContainsFunc(container.Env, func(e core.EnvVar) bool {
					return e.Name == "POD_IP" && e.ValueFrom.FieldRef.FieldPath == "status.podIP"
				}),
				"port":  slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool { return p.Name == "move" && p.ContainerPort == 9812 }),
				"flag":  slices.Contains(container.Args, "--move=:9812"),
				"flags": strings.Contains(strings.Join(container.Args, " "), "--move"),
			} {
				if has != want {
					t.Errorf("%s: container %s, %s: %t", name, container.Name, what, has)
				}
			}
		}
	}
}

// TestMovesThroughTheNetworkPolicy: the drivers' pods reach each other's port of moves, and who may read metrics does not.
func TestMovesThroughTheNetworkPolicy(t *testing.T) {
	prometheus := []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"app": "prometheus"}}}}
	for name, c := range map[string]struct {
		move bool
		from []any
		want []string // port, and a label of its peer
	}{
		"neither":        {},
		"metrics":        {false, prometheus, []string{"http prometheus"}},
		"moves":          {true, nil, []string{"move nodelvm"}},
		"metrics, moves": {true, prometheus, []string{"http prometheus", "move nodelvm"}},
	} {
		var policy networking.NetworkPolicy
		only(t, renderWith(t, map[string]any{"move": map[string]any{"enabled": c.move}, "networkPolicy": map[string]any{"enabled": true, "from": c.from}}), "NetworkPolicy", &policy)
		var got []string
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				for _, from := range rule.From {
					labels := from.PodSelector.MatchLabels
					got = append(got, port.Port.String()+" "+labels["app"]+labels["app.kubernetes.io/name"])
					if labels["app"] == "" && labels["app.kubernetes.io/component"] != "node" {
						t.Errorf("%s: %v", name, labels)
					}
				}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
