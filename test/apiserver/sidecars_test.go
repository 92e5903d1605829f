//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube/apiproxy"
	"github.com/nodelvm/nodelvm/lvm"
)

// csiPlugin is the identity and the node service of a driver whose controller service is the real one.
type csiPlugin struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	node string
}

func (p *csiPlugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driver, VendorVersion: "v0.0.1"}, nil
}

func (p *csiPlugin) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	reply := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS} {
		reply.Capabilities = append(reply.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}}})
	}
	return reply, nil
}

func (p *csiPlugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (p *csiPlugin) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: p.node, AccessibleTopology: &csi.Topology{Segments: map[string]string{topology: p.node}}}, nil
}

// noRoom answers the one code that the sidecars must understand here.
func noRoom(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, req)
	if lvm.KindOf(err) == lvm.KindInsufficientCapacity {
		err = status.Error(codes.ResourceExhausted, err.Error())
	}
	return reply, err
}

// startSidecars runs csi-provisioner and csi-snapshotter with the arguments of the manifest and the token of the node, before the
// driver's controller service, until the test ends. It answers their logs.
func (n *node) startSidecars(t *testing.T) (logs func() string) {
	t.Helper()
	dir := n.serveSidecars(t)
	var files []string
	for _, c := range manifestContainers(t)[1:] {
		log, _ := n.startSidecar(t, dir, c)
		files = append(files, log)
	}
	return func() string {
		var all bytes.Buffer
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			all.Write(text)
		}
		return all.String()
	}
}

// serveSidecars serves what the sidecars need of the driver, and answers the directory with its socket and the configurations of
// the API: direct, and through the driver's proxy.
func (n *node) serveSidecars(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi-") // a socket's path is short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "s"))
	must(t, err)
	plugin, service := &csiPlugin{node: n.name}, grpc.NewServer(grpc.UnaryInterceptor(noRoom))
	csi.RegisterIdentityServer(service, plugin)
	csi.RegisterNodeServer(service, plugin)
	csi.RegisterControllerServer(service, controller.New(controller.Config{
		NodeName: n.name, Volumes: n.host, Snapshots: n.host, Cluster: n.cluster, FullCopies: n.copies, CheckFileSystem: func(string, string) error { return nil },
	}))
	go func() { _ = service.Serve(listener) }()
	t.Cleanup(service.Stop)
	proxy, err := apiproxy.New(config(n.token), n.name, slog.New(slog.DiscardHandler))
	must(t, err)
	local := httptest.NewUnstartedServer(proxy)
	startTLS(t, local)
	writeKubeconfig(t, filepath.Join(dir, "direct"), server, n.token)
	writeKubeconfig(t, filepath.Join(dir, "proxied"), local.URL, n.token)
	return dir
}

// startTLS serves as the driver does.
func startTLS(t *testing.T, local *httptest.Server) {
	t.Helper()
	var err error
	local.TLS, err = apiproxy.ServerConfig()
	must(t, err)
	local.EnableHTTP2 = true
	local.StartTLS()
	t.Cleanup(local.Close)
}

func writeKubeconfig(t *testing.T, path, server, token string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	must(t, clientcmd.WriteToFile(*config, path))
}

// startSidecar runs one of them, with the API as its arguments have it: through the driver's proxy or not. It answers the file that
// it logs to, and its process.
func (n *node) startSidecar(t *testing.T, dir string, c corev1.Container) (log string, pid int) {
	t.Helper()
	api := "direct"
	args := slices.DeleteFunc(slices.Clone(c.Args), func(arg string) bool {
		if strings.HasPrefix(arg, "--kubeconfig=") {
			api = "proxied"
			return true
		}
		return strings.HasPrefix(arg, "--csi-address=") || strings.HasPrefix(arg, "--http-endpoint=")
	})
	args = append(args, "--csi-address="+filepath.Join(dir, "s"), "--kubeconfig="+filepath.Join(dir, api))
	cmd := exec.Command(sidecars[c.Name], args...) //nolint:noctx // the test's end ends it
	cmd.Env = append(slices.Clone(n.env), "NODE_NAME="+n.name, "NAMESPACE="+system, "POD_NAME=nodelvm-"+n.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	file, err := os.Create(filepath.Join(dir, c.Name+".log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = file, file
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		must(t, file.Close())
	})
	return file.Name(), cmd.Process.Pid
}

// manifestPod is the driver's pod.
func manifestPod(t *testing.T) corev1.PodSpec {
	t.Helper()
	text, err := os.ReadFile("../../deploy/nodelvm.yaml")
	must(t, err)
	var set appsv1.DaemonSet
	for object := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(object, []byte("\nkind: DaemonSet\n")) {
			must(t, yaml.UnmarshalStrict(object, &set))
		}
	}
	return set.Spec.Template.Spec
}

// manifestContainers are those of the driver's pod; the first is the driver.
func manifestContainers(t *testing.T) []corev1.Container { return manifestPod(t).Containers }

// TestSidecarsAreAdmitted: the real csi-provisioner and csi-snapshotter do all that they do for a node with what the policies and
// RBAC leave them.
func TestSidecarsAreAdmitted(t *testing.T) {
	here := newNode(t, "a")
	logs := here.startSidecars(t)
	defer func() {
		for line := range strings.Lines(logs()) {
			if strings.Contains(line, "forbidden") || t.Failed() && !strings.HasPrefix(line, "I") {
				t.Error(line)
			}
		}
	}()
	soon(t, "the capacity is published", func() bool {
		list, err := admin.StorageV1().CSIStorageCapacities(system).List(t.Context(), metav1.ListOptions{LabelSelector: "csi.storage.k8s.io/managed-by=external-provisioner-" + here.name})
		return err == nil && len(list.Items) > 0
	})
	claim := here.selectedClaim(t, "data", func(*corev1.PersistentVolumeClaim) {})
	pv := here.untilProvisioned(t, claim)
	claim = bindTo(t, claim, pv.Name)
	patchVolume(t, pv.Name, "status", `{"status": {"phase": "Bound"}}`)

	content := contentOf(t, here.name, pv, "snap")
	soon(t, "the snapshot is ready", func() bool { return isReady(t, content) })
	patchRaw(t, []string{snapshotsIn(t), "snap", "status"}, `{"status": {"readyToUse": true, "boundVolumeSnapshotContentName": %q}}`, content)
	restored := here.selectedClaim(t, "restored", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotGroup), Kind: "VolumeSnapshot", Name: "snap"}
	})
	copied := here.untilProvisioned(t, restored).Name
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, selected)) // as that of a static volume: the proxy knows its volume
	clone := here.selectedClaim(t, "clone", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: claim.Name}
	})
	cloned := here.untilProvisioned(t, clone).Name

	large := here.selectedClaim(t, "large", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1Ti")
	})
	until(t, large, "given back", func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[selected] == "" })

	patchRaw(t, []string{contents, content}, `{"metadata": {"annotations": {"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}}}`)
	must(t, admin.RESTClient().Delete().AbsPath(contents, content).Do(t.Context()).Error())
	untilGone(t, "the content", there(t, contents, content))
	for _, name := range []string{pv.Name, copied, cloned} {
		here.untilDeleted(t, name)
	}
}
