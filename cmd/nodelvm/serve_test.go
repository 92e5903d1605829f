package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a driver in this process, over a fake node with the group vg.
type running struct {
	*driver
	log  *buffer
	stop context.CancelFunc // as SIGTERM does
	done chan error
}

// run starts the driver under a folder of the test's own, and waits until it is ready.
func run(t *testing.T, node *lvmtest.Node) *running {
	t.Helper()
	return runOn(t, hostOn(node))
}

// runOn is run with another host.
func runOn(t testing.TB, newHost func(lvm.Config) (*host.Host, error)) *running {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "plugins_registry"), 0o750))
	r := &running{log: &buffer{}, done: make(chan error, 1)}
	log, err := logs.New(r.log, "info", "json")
	must(t, err)
	r.driver = newDriver(&options{
		endpoint: "unix://" + filepath.Join(dir, "csi.sock"), nodeName: "node-1", kubeletDir: dir, register: true,
		clusterID: "cluster-1", standalone: true, stateDir: dir, shutdownGrace: 10 * time.Second, groupSnapshots: true,
	}, log)
	r.newHost = newHost
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- r.serve(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended // it writes to dir until then
	})
	for deadline := time.Now().Add(wait.Limit(time.Minute)); r.ready.Ready(ctx) != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %v\n%s", r.ready.Ready(ctx), r.log)
		}
	}
	return r
}

// hostOn is host.NewHost on a fake node.
func hostOn(node *lvmtest.Node) func(lvm.Config) (*host.Host, error) {
	return func(cfg lvm.Config) (*host.Host, error) { return node.Host(cfg), nil }
}

func (r *running) socket(t *testing.T) string {
	t.Helper()
	path, err := r.o.socket()
	must(t, err)
	return path
}

func newNode() *lvmtest.Node {
	return lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
}

func createRequest(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
		Parameters: map[string]string{"volumeGroup": "vg"},
	}
}

// One life of the driver: the kubelet finds it, volumes are made and measured, and it goes without a trace.
func TestServe(t *testing.T) {
	r := run(t, newNode())
	if err := r.serving(t.Context()); err == nil || !strings.Contains(err.Error(), "has not registered the driver") {
		t.Errorf("before the kubelet has registered it, the driver serves pods: %v", err)
	}
	kubelet := registration.NewRegistrationClient(dial(t, registrySocket(r.o.kubeletDir)))
	info, err := kubelet.GetInfo(t.Context(), &registration.InfoRequest{})
	must(t, err)
	if info.GetType() != registration.CSIPlugin || info.GetName() != "nodelvm.io" || info.GetEndpoint() != r.socket(t) || len(info.GetSupportedVersions()) == 0 {
		t.Errorf("the kubelet is told %v", info)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{Error: "no such socket"}); err != nil {
		t.Error(err)
	}
	if err := r.serving(t.Context()); err == nil || !strings.Contains(err.Error(), "no such socket") {
		t.Errorf("refused by the kubelet, the driver serves pods: %v", err)
	}
	if _, err := kubelet.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		t.Error(err)
	}
	if err := r.serving(t.Context()); err != nil {
		t.Errorf("registered, the driver does not serve pods: %v", err)
	}

	conn := dial(t, r.socket(t))
	if probe, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}); err != nil || !probe.GetReady().GetValue() {
		t.Errorf("probe: %v, %v", probe, err)
	}
	ctrl := csi.NewControllerClient(conn)
	reply, err := ctrl.CreateVolume(t.Context(), createRequest("v1"))
	must(t, err)
	if got := reply.GetVolume().GetAccessibleTopology()[0].GetSegments()[api.TopologyKey]; got != "node-1" {
		t.Errorf("the volume is on %q", got)
	}
	large := createRequest("v2")
	large.CapacityRange.RequiredBytes = 1 << 40
	if _, err := ctrl.CreateVolume(t.Context(), large); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("too large a volume got %v", err)
	}
	expectMetric(t, r.registry, "nodelvm_lvm_command_duration_seconds", map[string]string{"command": "lvcreate", "exit_code": "0"})
	expectMetric(t, r.registry, "nodelvm_volumes", map[string]string{"state": "ready"})
	expectMetric(t, r.registry, "nodelvm_volume_group_free_bytes", map[string]string{"vg": "vg"})

	r.stop()
	if err := <-r.done; err != nil {
		t.Fatalf("ended with %v\n%s", err, r.log)
	}
	for _, socket := range []string{r.socket(t), registrySocket(r.o.kubeletDir)} {
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind (%v)", socket, err)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "no such socket") {
		t.Errorf("the refused registration is not in the log: %s", log)
	}
}

func TestServeFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*driver)
		says  string
	}{
		{"no LVM", func(d *driver) {
			d.newHost = func(lvm.Config) (*host.Host, error) { return nil, errors.New("no lvm here") }
		}, "no lvm here"},
		{"no registry", func(d *driver) { d.o.kubeletDir = "/dev/null" }, "register with the kubelet"},
		{"no such address", func(d *driver) { d.o.httpEndpoint = "127.0.0.1:99999" }, "serve health and metrics"},
	} {
		t.Run(test.name, func(t *testing.T) {
			log, err := logs.New(&buffer{}, "error", "json")
			must(t, err)
			d := newDriver(&options{
				endpoint: "unix://" + filepath.Join(t.TempDir(), "csi.sock"), nodeName: "n", kubeletDir: t.TempDir(), register: true,
				clusterID: "c", standalone: true, stateDir: t.TempDir(), httpEndpoint: "127.0.0.1:0", shutdownGrace: time.Second,
			}, log)
			d.newHost = hostOn(newNode())
			test.spoil(d)
			if err := d.serve(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("ended with %v; want it to say %q", err, test.says)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for args, says := range map[string]string{
		"":                           "--node-name",
		"--node-name n --standalone": "--cluster-id",
		"--node-name n --max-volumes-per-node -1":                                      "--max-volumes-per-node",
		"--node-name n --endpoint tcp://0.0.0.0:1":                                     "--endpoint",
		"--node-name n --endpoint unix://csi.sock":                                     "--endpoint",
		"--node-name n --log-level loud":                                               "--log-level",
		"--node-name n --standalone --cluster-id c --log-format xml":                   "--log-format",
		"--node-name n --api-proxy-address :9811":                                      "loopback",
		"--node-name n --api-proxy-address 0.0.0.0:9811":                               "loopback",
		"--node-name n --api-proxy-address localhost:9811":                             "loopback",
		"--node-name n --api-proxy-address 127.0.0.1":                                  "loopback",
		"--node-name n --standalone --cluster-id c --api-proxy-address 127.0.0.1:9811": "--standalone",
		"--no-such-flag": "no-such-flag",
		"extra":          "extra",
	} {
		t.Setenv("NODE_NAME", "")
		command := rootCommand()
		command.SetArgs(append([]string{"serve"}, strings.Fields(args)...))
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("serve %s: %v; want it to say %q", args, err, says)
		}
	}
}

// buffer is a log that several goroutines write.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestGarbageIsLimited: the driver collects garbage earlier than Go does by default, and an admin's GOGC counts instead.
func TestGarbageIsLimited(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for variable, want := range map[string]int{"": garbagePercent, "200": 100} {
		debug.SetGCPercent(100)
		t.Setenv("GOGC", variable)
		limitGarbage()
		if is := debug.SetGCPercent(100); is != want {
			t.Errorf("GOGC=%q: the percentage is %d, want %d", variable, is, want)
		}
	}
}
