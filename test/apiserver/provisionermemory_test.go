//go:build e2e

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/kube/apiproxy"
)

// Through the proxy csi-provisioner needs no more than this, however many volumes the cluster has.
const provisionerMemory = 64 << 20

// TestProvisionerMemory: csi-provisioner of one node, among the volumes (NODELVM_TEST_SCALE_VOLUMES) and VolumeSnapshots
// (NODELVM_TEST_SCALE_SNAPSHOTS) of others, stays small behind the driver's proxy. NODELVM_TEST_SCALE_DIRECT=1 measures it without
// the proxy as well, and NODELVM_TEST_SCALE_ENV gives it environment variables, for docs/explanation/scale.md.
func TestProvisionerMemory(t *testing.T) {
	volumes, snapshots := numberOf("NODELVM_TEST_SCALE_VOLUMES", 3000), numberOf("NODELVM_TEST_SCALE_SNAPSHOTS", 2000)
	here := newNode(t, "a")
	writeOthers(t, volumes, snapshots)
	dir := here.serveSidecars(t)
	if os.Getenv("NODELVM_TEST_SCALE_DIRECT") != "" {
		direct := here.startProvisioner(t, dir, "direct")
		t.Logf("direct: %d MiB resident, %d MiB of it anonymous", direct.memory(t, "VmRSS")>>20, direct.memory(t, "RssAnon")>>20)
	}
	proxied := here.startProvisioner(t, dir, "proxied")
	resident := proxied.memory(t, "VmRSS")
	t.Logf("through the proxy: %d MiB resident, %d MiB of it anonymous; %d KiB read from the API server, %d KiB sent on",
		resident>>20, proxied.memory(t, "RssAnon")>>20, proxied.upstream.Load()>>10, proxied.downstream.Load()>>10)
	if resident > provisionerMemory {
		t.Errorf("csi-provisioner has %d MiB resident among %d volumes and %d VolumeSnapshots of other nodes, want at most %d",
			resident>>20, volumes, snapshots, provisionerMemory>>20)
	}
}

// numberOf reads an environment variable.
func numberOf(name string, ifNotSet int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return ifNotSet
}

// provisioner is a running csi-provisioner, with the bytes that the proxy has read for it and sent to it.
type provisioner struct {
	pid                  int
	upstream, downstream atomic.Int64
}

// startProvisioner runs csi-provisioner until its caches are full: it publishes capacity after that.
func (n *node) startProvisioner(t *testing.T, dir, way string) *provisioner {
	t.Helper()
	p := &provisioner{}
	if way == "proxied" {
		upstream := config(n.token)
		upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return countedConn{conn, &p.upstream, new(atomic.Int64)}, err
		}
		proxy, err := apiproxy.New(upstream, n.name, slog.New(slog.DiscardHandler))
		must(t, err)
		local := httptest.NewUnstartedServer(proxy)
		local.Listener = countedListener{local.Listener, &p.downstream}
		startTLS(t, local)
		writeKubeconfig(t, filepath.Join(dir, "proxied"), local.URL, n.token)
	}
	for _, c := range manifestContainers(t) {
		if c.Name != "csi-provisioner" {
			continue
		}
		if way == "direct" {
			c.Args = append(c.Args[:0:0], c.Args...)
			for i, arg := range c.Args {
				if strings.HasPrefix(arg, "--kubeconfig=") {
					c.Args[i] = "--v=2"
				}
			}
		}
		n.env = strings.Fields(os.Getenv("NODELVM_TEST_SCALE_ENV"))
		var log string
		log, p.pid = n.startSidecar(t, dir, c)
		soon(t, "csi-provisioner is synchronized", func() bool {
			text, err := os.ReadFile(log)
			must(t, err)
			return strings.Contains(string(text), "Started provisioner controller") &&
				strings.Contains(string(text), "Started SnapshotFinalizerProtection controller") // it has listed the VolumeSnapshots
		})
	}
	return p
}

// memory reads a row of the process's status, in bytes.
func (p *provisioner) memory(t *testing.T, row string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == row {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			must(t, err)
			return kib << 10
		}
	}
	t.Fatalf("/proc/%d/status has no row %s", p.pid, row)
	return 0
}

// writeOthers writes bound claims with their volumes, of 20 on each of many other nodes, and VolumeSnapshots.
func writeOthers(t *testing.T, volumes, snapshots int) {
	t.Helper()
	fast := config(adminPass)
	fast.QPS, fast.Burst = 5000, 5000
	client, err := kubernetes.NewForConfig(fast)
	must(t, err)
	space, ofSnapshots := namespace(t), snapshotsIn(t)
	inParallel(t, volumes, func(i int) error {
		return otherVolume(t.Context(), client, space, i, fmt.Sprintf("other-%d", i/20))
	})
	inParallel(t, snapshots, func(i int) error { return otherSnapshot(t.Context(), client.RESTClient(), ofSnapshots, i) })
	t.Cleanup(func() { // one by one: the API server ends the deletion of a large collection after a minute
		inParallel(t, volumes, func(i int) error {
			claim := otherClaim(i, "")
			return errors.Join(
				client.CoreV1().PersistentVolumeClaims(space).Delete(context.Background(), claim.Name, metav1.DeleteOptions{}),
				client.CoreV1().PersistentVolumes().Delete(context.Background(), claim.Spec.VolumeName, metav1.DeleteOptions{}))
		})
		inParallel(t, snapshots, func(i int) error {
			return client.RESTClient().Delete().AbsPath(ofSnapshots, otherSnapshotName(i)).Do(context.Background()).Error()
		})
	})
}

// inParallel does n things, 16 at a time.
func inParallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(16)
	for i := range n {
		writers.Go(func() error { return do(i) })
	}
	must(t, writers.Wait())
}

// otherSnapshot writes a VolumeSnapshot of another volume, which the snapshot controller has bound.
func otherSnapshot(ctx context.Context, client rest.Interface, path string, i int) error {
	name := otherSnapshotName(i)
	body := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": %q, "labels": {"test": "memory"}},
		"spec": {"volumeSnapshotClassName": "nodelvm", "source": {"persistentVolumeClaimName": "data-postgres-%d"}}}`, name, i)
	if err := client.Post().AbsPath(path).Body([]byte(body)).Do(ctx).Error(); err != nil {
		return err
	}
	status := fmt.Sprintf(`{"status": {"readyToUse": true, "restoreSize": "1Gi", "creationTime": "2026-01-01T00:00:00Z",
		"boundVolumeSnapshotContentName": "snapcontent-00000000-0000-4000-8000-%012d"}}`, i)
	return client.Patch(types.MergePatchType).AbsPath(path, name, "status").Body([]byte(status)).Do(ctx).Error()
}

func otherVolume(ctx context.Context, client kubernetes.Interface, space string, i int, on string) error {
	claim, err := client.CoreV1().PersistentVolumeClaims(space).Create(ctx, otherClaim(i, on), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: corev1.ResourceList(claim.Spec.Resources.Requests)}
	if _, err := client.CoreV1().PersistentVolumeClaims(space).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pv := provisioned(on, claim)
	pv.Name, pv.Labels = claim.Spec.VolumeName, ofMemoryTest
	pv, err = client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pv.Status.Phase = corev1.VolumeBound
	_, err = client.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
	return err
}

func otherSnapshotName(i int) string { return fmt.Sprintf("data-postgres-%d-daily", i) }

var ofMemoryTest = map[string]string{"test": "memory"}

func otherClaim(i int, on string) *corev1.PersistentVolumeClaim {
	class := "thin"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-postgres-%d", i), Labels: ofMemoryTest, Annotations: map[string]string{
			selected: on, "volume.kubernetes.io/storage-provisioner": driver, "volume.beta.kubernetes.io/storage-provisioner": driver,
			"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			VolumeName: fmt.Sprintf("pvc-00000000-0000-4000-8000-%012d", i),
		},
	}
}

// countedConn counts what is read from and written to a connection.
type countedConn struct {
	net.Conn
	read, written *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

type countedListener struct {
	net.Listener
	written *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, new(atomic.Int64), l.written}, err
}
