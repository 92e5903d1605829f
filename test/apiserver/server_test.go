//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/lab"
)

const (
	driver    = "nodelvm.io"
	topology  = "topology.nodelvm.io/node"
	selected  = "volume.kubernetes.io/selected-node"
	system    = "nodelvm-system"
	adminPass = "admin"
)

// server is the API server of all tests; admin may do everything there, and so may kubectl with its token.
var (
	server   string
	kubectl  string
	sidecars map[string]string // files of csi-provisioner and csi-snapshotter, by name
	admin    *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	code, err := withServer(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the API server:", err)
		code = 1
	}
	os.Exit(code)
}

// withServer raises etcd and the API server around run.
func withServer(run func() int) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
	defer cancel()
	l, err := lab.Open("")
	if err != nil {
		return 0, err
	}
	bin, err := l.Binaries(ctx)
	if err != nil {
		return 0, err
	}
	crds, err := l.SnapshotCRDs(ctx)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "apiserver-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubectl, sidecars = bin["kubectl"], bin
	stop, err := startServer(dir, bin)
	if err != nil {
		return 0, err
	}
	defer stop()
	kubectl = bin["kubectl"]
	if err := setUp(ctx, crds); err != nil {
		return 0, fmt.Errorf("%w (logs were in %s)", err, dir)
	}
	return run(), nil
}

// startServer starts etcd and the API server; stop ends both.
func startServer(dir string, bin map[string]string) (stop func(), err error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	server = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	file := func(name string) string { return filepath.Join(dir, name) }
	tokens := []byte(adminPass + ",admin,admin,system:masters\n")
	if err := errors.Join(writeKey(file("sa.key")), os.WriteFile(file("tokens"), tokens, 0o600)); err != nil {
		return nil, err
	}
	etcd, err := start(dir, bin["etcd"], "--data-dir="+file("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return nil, err
	}
	api, err := start(dir, bin["kube-apiserver"], "--etcd-servers="+client, "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", ports[2]), "--cert-dir="+file("certs"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.99.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+file("sa.key"), "--service-account-signing-key-file="+file("sa.key"),
		"--token-auth-file="+file("tokens"), "--allow-privileged=true", "--profiling=false")
	if err != nil {
		etcd()
		return nil, err
	}
	return func() { api(); etcd() }, nil
}

// start starts a daemon that ends with this process at the latest.
func start(dir, path string, args ...string) (stop func(), err error) {
	log, err := os.Create(filepath.Join(dir, filepath.Base(path)+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it is ended by stop
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill() // nothing of it is needed any more
		_ = cmd.Wait()
		_ = log.Close()
	}, nil
}

func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// writeKey makes the key that tokens are signed with.
func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func config(token string) *rest.Config {
	return &rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 200, Burst: 400}
}

// setUp waits for the API server and gives it what a cluster with the driver has.
func setUp(ctx context.Context, crds []string) (err error) {
	if admin, err = kubernetes.NewForConfig(config(adminPass)); err != nil {
		return err
	}
	for deadline := time.Now().Add(wait.Limit(2 * time.Minute)); ; time.Sleep(100 * time.Millisecond) {
		err := admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return err
		}
	}
	args := []string{"--server=" + server, "--token=" + adminPass, "--insecure-skip-tls-verify", "create", "-f", "../../deploy/nodelvm.yaml", "-f", "../../deploy/controller.yaml"}
	for _, file := range crds {
		args = append(args, "-f", file)
	}
	if out, err := exec.CommandContext(ctx, kubectl, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl create: %w: %s", err, bytes.TrimSpace(out))
	}
	_, err = admin.StorageV1().StorageClasses().Create(ctx, classOf("thin", map[string]string{"volumeGroup": "vg", "layout": "thin"}), metav1.CreateOptions{})
	return err
}

// minorVersion returns the minor version of the API server's Kubernetes.
func minorVersion(t *testing.T) int {
	t.Helper()
	version, err := admin.Discovery().ServerVersion()
	must(t, err)
	minor, err := strconv.Atoi(version.Minor)
	must(t, err)
	return minor
}

// tokenOf makes a node with the driver's pod on it, and answers that pod's token.
func tokenOf(ctx context.Context, node string) (string, error) {
	_, err := admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	pod, err := admin.CoreV1().Pods(system).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nodelvm-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "nodelvm", Containers: []corev1.Container{{Name: "nodelvm", Image: "nodelvm"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	request, err := admin.CoreV1().ServiceAccounts(system).CreateToken(ctx, "nodelvm", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}
