package main

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestRoutes: each port of a Service leads to the ready endpoints of that port, and to none of another Service.
func TestRoutes(t *testing.T) {
	service := func(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	}
	tcp := func(name string, port int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP}
	}
	endpoint := func(ip string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	slice := func(namespace, service string, ports map[string]int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: service}}, Endpoints: endpoints}
		for name, port := range ports {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(name), Port: ptr.To(port)})
		}
		return s
	}
	got := routes([]*corev1.Service{
		service("default", "kubernetes", "10.96.0.1", tcp("https", 443)),
		service("a", "db", "10.96.1.1", tcp("sql", 5432), tcp("metrics", 80), corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}),
		service("b", "db", "10.96.1.2", tcp("", 5432)),
		service("b", "headless", corev1.ClusterIPNone, tcp("", 5432)),
	}, []*discoveryv1.EndpointSlice{
		slice("a", "db", map[string]int32{"sql": 15432}, endpoint("10.244.1.2", nil), endpoint("10.244.1.3", ptr.To(false))),
		slice("a", "db", map[string]int32{"sql": 15432, "metrics": 9187}, endpoint("10.244.2.2", ptr.To(true))),
		slice("b", "headless", map[string]int32{"": 5432}, endpoint("10.244.1.9", nil)),
	})
	want := map[string][]string{
		"10.96.1.1:5432": {"10.244.1.2:15432", "10.244.2.2:15432"}, "10.96.1.1:80": {"10.244.2.2:9187"}, "10.96.1.2:5432": nil,
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("routes = %v, want %v", got, want)
	}
}
