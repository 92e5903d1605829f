package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// The driver serves its status page without a token on its pod's loopback address alone. A port that the API server forwards ends
// there: so Kubernetes decides who may read the page (pods/portforward). Unlike kubectl port-forward, this opens no port on the
// user's machine, which others there could use.

// client is an HTTP client whose connections end at a port of the pod.
func (c *cluster) client(pod *corev1.Pod, port string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // one page of each pod
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.forward(ctx, pod, port)
		},
	}}
}

// forward opens a connection to a port of the pod. The dialer knows no context: one that ends late is closed.
func (c *cluster) forward(ctx context.Context, pod *corev1.Pod, port string) (net.Conn, error) {
	dialer, err := c.dialer(pod)
	if err != nil {
		return nil, err
	}
	type dialled struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() {
		conn, err := dial(dialer, port)
		done <- dialled{conn, err}
	}()
	select {
	case d := <-done:
		return d.conn, d.err
	case <-ctx.Done():
		go func() {
			if d := <-done; d.err == nil {
				_ = d.conn.Close() // no caller waits for it
			}
		}()
		return nil, ctx.Err()
	}
}

// dialer speaks to the pod's kubelet through the API server: by a WebSocket or, where a proxy on the way lets none through, by SPDY.
func (c *cluster) dialer(pod *corev1.Pod) (httpstream.Dialer, error) {
	url := c.api.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	webSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, c.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(webSocket,
		spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		func(err error) bool { return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) }), nil
}

func dial(dialer httpstream.Dialer, port string) (net.Conn, error) {
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		_ = conn.Close() // of no use
		return nil, fmt.Errorf("the kubelet speaks %q, not %s", protocol, portforward.PortForwardProtocolV1Name)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := conn.CreateStream(headers)
	if err == nil {
		_ = failed.Close() // nothing is written to it
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = conn.CreateStream(headers); err == nil {
			return &forwarded{Stream: data, conn: conn, failed: failed}, nil
		}
	}
	_ = conn.Close() // the stream's error says more
	return nil, err
}

// forwarded is a forwarded connection. Its deadlines are those of the request's context, which closes it.
type forwarded struct {
	httpstream.Stream
	conn   httpstream.Connection
	failed httpstream.Stream // the kubelet's words, if it cannot reach the port
}

// Read says what the kubelet says, where there is nothing else to read.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if n == 0 && err != nil {
		if text, _ := io.ReadAll(io.LimitReader(f.failed, 1<<10)); len(text) > 0 { // what was read of it is enough
			return 0, fmt.Errorf("%s", text)
		}
	}
	return n, err
}

// Close ends the connection, and its streams with it.
func (f *forwarded) Close() error {
	_ = f.Reset() // the caller gets the error of the connection
	return f.conn.Close()
}

func (f *forwarded) LocalAddr() net.Addr              { return forwardedAddr{} }
func (f *forwarded) RemoteAddr() net.Addr             { return forwardedAddr{} }
func (f *forwarded) SetDeadline(time.Time) error      { return nil }
func (f *forwarded) SetReadDeadline(time.Time) error  { return nil }
func (f *forwarded) SetWriteDeadline(time.Time) error { return nil }

type forwardedAddr struct{}

func (forwardedAddr) Network() string { return "portforward" }
func (forwardedAddr) String() string  { return "portforward" }
