//go:build e2e

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// kubelet forwards ports, with the code that container runtimes do it with: each ends at this machine's loopback address, as it
// ends at that of the pod.
type kubelet struct{}

func (kubelet) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, err = io.Copy(stream, conn)
	return err
}

// newKubelet makes a node whose kubelet forwards the ports of its pods.
func newKubelet(t *testing.T, name string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, kubelet{}, "pod", "uid", &portforward.V4Options{}, time.Minute, 30*time.Second, portforward.SupportedProtocols)
	}))
	must(t, server.Listener.Close())
	var err error
	server.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(ownAddress(t), "0"))
	must(t, err)
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}) // who has a node's token has its Node object
	if apierrors.IsNotFound(err) {
		node, err = create(t, admin.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}), nil
	}
	must(t, err)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ownAddress(t)}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(server.Listener.Addr().(*net.TCPAddr).Port)
	_, err = admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
}
