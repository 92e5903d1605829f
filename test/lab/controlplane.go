package lab

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// controlPlaneNames are the control plane's processes, in the order of their start.
var controlPlaneNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "snapshot-controller"}

// controlPlaneFlags returns the flags of one process of the control plane. All processes listen only inside the lab's network
// namespace, etcd on its loopback address.
func (l *Lab) controlPlaneFlags(name string) []string {
	switch name {
	case "etcd":
		return []string{
			"--data-dir=" + filepath.Join(l.dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380",
		}
	case "kube-apiserver":
		return append(l.gates.flags(), []string{
			"--etcd-servers=http://127.0.0.1:2379",
			// not all addresses: other Services, too, have this port
			"--bind-address=" + serviceIP, fmt.Sprintf("--secure-port=%d", apiPort), "--advertise-address=" + serviceIP,
			"--tls-cert-file=" + l.pki("apiserver.crt"), "--tls-private-key-file=" + l.pki("apiserver.key"),
			"--client-ca-file=" + l.pki("ca.crt"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--service-cluster-ip-range=" + services,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + l.pki("service-account.crt"),
			"--service-account-signing-key-file=" + l.pki("service-account.key"),
			"--kubelet-client-certificate=" + l.pki("kubelet-client.crt"), "--kubelet-client-key=" + l.pki("kubelet-client.key"),
			"--kubelet-certificate-authority=" + l.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--allow-privileged=true", "--profiling=false",
			"--audit-policy-file=" + l.auditPolicy(), "--audit-log-path=" + l.AuditLog(), "--audit-log-mode=batch",
		}...)
	case "kube-controller-manager":
		return []string{
			"--kubeconfig=" + l.pki("kube-controller-manager.kubeconfig"), "--bind-address=127.0.0.1",
			"--use-service-account-credentials", "--leader-elect=false", "--profiling=false",
			"--root-ca-file=" + l.pki("ca.crt"),
			"--service-account-private-key-file=" + l.pki("service-account.key"),
			"--node-monitor-grace-period=30s", "--node-monitor-period=2s",
		}
	case "kube-scheduler":
		return []string{
			"--kubeconfig=" + l.pki("kube-scheduler.kubeconfig"), "--bind-address=127.0.0.1",
			"--leader-elect=false", "--profiling=false",
		}
	case "snapshot-controller":
		return []string{
			"--kubeconfig=" + l.pki("snapshot-controller.kubeconfig"), "--v=2",
			fmt.Sprintf("--enable-distributed-snapshotting=%t", !l.central), // label each content with its node
			"--feature-gates=CSIVolumeGroupSnapshot=true",
		}
	}
	panic("no such control plane process: " + name)
}

// AuditLog returns the file in which the API server logs each request of the driver's service account.
func (l *Lab) AuditLog() string { return filepath.Join(l.Logs(), "audit.log") }

func (l *Lab) auditPolicy() string { return filepath.Join(l.systemDir(), "audit-policy.yaml") }

// auditRules logs only the driver's requests: the tests do not need others, and logging costs time.
const auditRules = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:nodelvm-system:nodelvm"]
- level: None
`

// startControlPlane starts the named processes.
func (l *Lab) startControlPlane(bin binaries, names ...string) error {
	for _, name := range names {
		argv := append([]string{bin[name]}, l.controlPlaneFlags(name)...)
		if err := l.startDaemon(daemon{name: name, argv: argv, core: -1}); err != nil {
			return err
		}
	}
	return nil
}

// RestartAPIServer kills the API server, starts it again and waits until it is ready. For WhileHealthy of this process it has not ended.
func (l *Lab) RestartAPIServer(ctx context.Context) error {
	st, err := l.clusterState()
	if err != nil {
		return err
	}
	if err := l.replaceProcess(st.Binaries, "kube-apiserver"); err != nil {
		return err
	}
	return l.waitAPI(ctx)
}

// RestartSnapshotController restarts the snapshot-controller, with or without --enable-distributed-snapshotting.
func (l *Lab) RestartSnapshotController(distributed bool) error {
	st, err := l.clusterState()
	if err != nil {
		return err
	}
	l.central = !distributed
	return l.replaceProcess(st.Binaries, "snapshot-controller")
}

// replaceProcess kills a process of the control plane, and starts it again.
func (l *Lab) replaceProcess(bin binaries, name string) error {
	l.restarting.Lock()
	defer l.restarting.Unlock()
	if err := l.killDaemon(name, time.Second); err != nil {
		return err
	}
	return l.startControlPlane(bin, name)
}

// pollTimeout limits one request while the cluster starts: an API server without its etcd does not answer for a minute.
const pollTimeout = 5 * time.Second

// applySnapshotCRDs installs the APIs of snapshots and of group snapshots, which are not a part of Kubernetes.
func (l *Lab) applySnapshotCRDs(ctx context.Context, bin binaries) error {
	files, err := snapshotCRDs(ctx, bin)
	if err != nil {
		return err
	}
	args := []string{"create"}
	for _, file := range files {
		args = append(args, "-f", file)
	}
	var out bytes.Buffer
	if err := l.Kubectl(ctx, nil, &out, &out, args...); err != nil {
		return fmt.Errorf("install the snapshot API: %w: %s", err, out.String())
	}
	return nil
}

// snapshotCRDs returns the files with the CustomResourceDefinitions of both APIs, from the module of the compiled
// snapshot-controller.
func snapshotCRDs(ctx context.Context, bin binaries) ([]string, error) {
	src := filepath.Join(filepath.Dir(bin["snapshot-controller"]), "src")
	dir, err := goOutput(ctx, src, "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return nil, err
	}
	pattern := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "*snapshot.storage.k8s.io_*.yaml")
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) != 6 {
		err = fmt.Errorf("%s: %d files, want 3 of each of the two APIs", pattern, len(files))
	}
	return files, err
}

// waitAPI waits until the API server reports that it is ready.
func (l *Lab) waitAPI(ctx context.Context) error {
	config, err := l.RESTConfig()
	if err != nil {
		return err
	}
	config.Timeout = pollTimeout
	client, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		return err
	}
	return l.poll(ctx, bootTimeout, "kube-apiserver", controlPlaneNames[:2], func(ctx context.Context) error {
		return client.Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// poll calls ready until it returns nil. It fails after limit, with an error that names the log called name, or as soon as one of
// the daemons has stopped.
func (l *Lab) poll(ctx context.Context, limit time.Duration, name string, daemons []string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		for _, d := range daemons {
			if !l.alive(d) {
				return l.logged(d, fmt.Errorf("%s has stopped", d))
			}
		}
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return l.logged(name, fmt.Errorf("%s is not ready after %s: %w", name, limit, err))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
