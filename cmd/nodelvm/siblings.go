package main

import (
	"context"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
)

// siblings is what the Controller service asks of the cluster, in its own words.
type siblings struct{ *kube.Agent }

// siblingsOf is nil without an agent: volumes are placed alone.
func siblingsOf(agent *kube.Agent) controller.Siblings {
	if agent == nil {
		return nil
	}
	return siblings{agent}
}

// Company is kube.Agent.Company.
func (s siblings) Company(ctx context.Context, namespace, claim string) (controller.Company, error) {
	found, err := s.Agent.Company(ctx, namespace, claim)
	company := controller.Company{Pods: found.Pods, PodUID: found.PodUID}
	for _, c := range found.Claims {
		company.Claims = append(company.Claims, controller.Sibling(c))
	}
	return company, err
}
