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

// The driver serves its status page without a token, only on its pod's loopback address. The API server forwards a port to that
// address, so Kubernetes decides who may read the page (pods/portforward). Unlike kubectl port-forward, the plugin opens no port
// on the user's machine, which other users there could use.

// client returns an HTTP client whose connections go to a port of the pod.
func (c *cluster) client(pod *corev1.Pod, port string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // each pod gets one request
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.forward(ctx, pod, port)
		},
	}}
}

// forward opens a connection to a port of the pod. The dialer takes no context, so forward closes a connection that opens too late.
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

// dialer returns a dialer to the pod's kubelet through the API server. It uses a WebSocket, or SPDY if a proxy blocks WebSockets.
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
		_ = conn.Close() // the protocol error is returned
		return nil, fmt.Errorf("the kubelet speaks %q, not %s", protocol, portforward.PortForwardProtocolV1Name)
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := conn.CreateStream(headers)
	if err == nil {
		_ = failed.Close() // the plugin only reads from it
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = conn.CreateStream(headers); err == nil {
			return &forwarded{Stream: data, conn: conn, failed: failed}, nil
		}
	}
	_ = conn.Close() // the stream's error says more
	return nil, err
}

// forwarded is a forwarded connection. It ignores deadlines: the request's context closes it.
type forwarded struct {
	httpstream.Stream
	conn   httpstream.Connection
	failed httpstream.Stream // the kubelet's error message, if it cannot connect to the port
}

// Read returns the kubelet's error if the connection ends without data.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if n == 0 && err != nil {
		if text, _ := io.ReadAll(io.LimitReader(f.failed, 1<<10)); len(text) > 0 { // a part of the message is enough
			return 0, fmt.Errorf("%s", text)
		}
	}
	return n, err
}

// Close closes the connection with its streams.
func (f *forwarded) Close() error {
	_ = f.Reset() // the caller gets the connection's error
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
