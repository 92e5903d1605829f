package main

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/kube/apiproxy"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// serveAPIProxy serves the API to csi-provisioner until the caller closes the returned server. A watch can last long, so the
// server limits the time of a header, but not of a request.
func (d *driver) serveAPIProxy(ctx context.Context, parts *errgroup.Group) (*http.Server, error) {
	server := &http.Server{ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	if d.o.apiProxy == "" {
		return server, nil
	}
	config, err := kubeclient.NewConfig()
	if err != nil {
		return nil, err
	}
	if server.Handler, err = apiproxy.New(config, d.o.nodeName, d.log); err != nil {
		return nil, err
	}
	if server.TLSConfig, err = apiproxy.ServerConfig(); err != nil {
		return nil, fmt.Errorf("cannot serve the proxy of the Kubernetes API: %w", err)
	}
	if err := serveOn(ctx, parts, d.o.apiProxy, server); err != nil {
		return nil, fmt.Errorf("cannot serve the proxy of the Kubernetes API: %w", err)
	}
	return server, nil
}
