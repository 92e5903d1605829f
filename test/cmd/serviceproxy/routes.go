package main

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// routes returns the address of each TCP port of each Service, with those of its ready endpoints. It leaves out the API server's own
// Service: the API server listens at that address.
func routes(services []*corev1.Service, slices []*discoveryv1.EndpointSlice) map[string][]string {
	bySvc := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range slices {
		name := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
		bySvc[name] = append(bySvc[name], s)
	}
	all := map[string][]string{}
	for _, s := range services {
		name := s.Namespace + "/" + s.Name
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || name == "default/kubernetes" {
			continue
		}
		for _, port := range s.Spec.Ports {
			if port.Protocol == corev1.ProtocolTCP {
				all[address(s.Spec.ClusterIP, port.Port)] = targets(port.Name, bySvc[name])
			}
		}
	}
	return all
}

// targets returns the addresses of the ready endpoints that serve the port with this name.
func targets(port string, slices []*discoveryv1.EndpointSlice) (all []string) {
	for _, s := range slices {
		for _, p := range s.Ports {
			if p.Port == nil || (p.Name == nil && port != "") || (p.Name != nil && *p.Name != port) {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					for _, ip := range e.Addresses {
						all = append(all, address(ip, *p.Port))
					}
				}
			}
		}
	}
	return all
}

func address(ip string, port int32) string { return net.JoinHostPort(ip, strconv.Itoa(int(port))) }
