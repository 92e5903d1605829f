package cluster

import (
	"github.com/nodelvm/nodelvm/test/lab"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// Namespace has the scenario's pods and claims.
const Namespace = "demo"

// Names that the driver guarantees; the scenarios check them.
const (
	Driver      = "nodelvm.io"
	TopologyKey = "topology.nodelvm.io/node"
)

// Cluster is a running lab, its API server, and a reporter.
type Cluster struct {
	Lab      *lab.Lab
	Client   kubernetes.Interface
	Reporter *Reporter

	shown string // the table that ShowVolumes printed last
}

// New connects to a lab that is up.
func New(l *lab.Lab, n *Reporter) (*Cluster, error) {
	config, err := l.RESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{Lab: l, Client: client, Reporter: n}, nil
}

// FastClient returns a client without a rate limit, which uses protobuf.
func (c *Cluster) FastClient() (kubernetes.Interface, error) {
	config, err := c.Lab.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.ContentType = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}
