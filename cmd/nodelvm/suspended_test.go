package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// leftMapping is the mapping of an encrypted volume that a killed driver left suspended.
type leftMapping struct {
	below   func() bool // reports whether the device below is suspended
	fails   int         // attempts
	blocked bool        // a resume found the device below suspended: the kernel would wait for it
	resumed atomic.Bool
}

func (m *leftMapping) Recover(ctx context.Context) error { return m.Resume(ctx) }

func (m *leftMapping) Resume(context.Context) error {
	m.blocked = m.blocked || m.below()
	if m.fails--; m.fails >= 0 {
		return errors.New("no memory")
	}
	m.resumed.Store(true)
	return nil
}

// suspendedVolume returns a node with a suspended volume of a cluster, and a function that reports whether it is still suspended.
func suspendedVolume(t *testing.T, cluster string) (*lvmtest.Node, func() bool) {
	t.Helper()
	node := newNode()
	first := node.Host(lvm.Config{Cluster: cluster})
	must(t, first.Start(t.Context()))
	v, err := first.Create(t.Context(), lvm.Spec{Name: "v", Class: lvm.Class{Group: "vg"}, Required: lvm.GiB})
	must(t, err)
	path, err := first.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	must(t, first.Close(t.Context()))
	node.Suspend(path)
	return node, func() bool {
		is, err := node.Kernel().IsSuspended(path)
		return is || err != nil
	}
}

// TestSuspendedVolumesNeedNoAPIServer: without an API server, the driver resumes what a killed one left suspended: first LVM's devices,
// then the mappings on them, and nothing while another driver runs on the node, which may just take a snapshot.
func TestSuspendedVolumesNeedNoAPIServer(t *testing.T) {
	node, suspended := suspendedVolume(t, "u-1")
	server := httptest.NewServer(nil)
	kubeconfig(t, server.URL)
	server.Close()
	dir := t.TempDir()
	d := testDriver(t, &options{nodeName: "node-1", stateDir: dir, lockDir: dir, shutdownGrace: 10 * time.Second})
	d.recordCluster("u-1")
	left := &leftMapping{below: suspended, fails: 1}
	d.newHost, d.mappings = hostOn(node), left
	older := node.Host(lvm.Config{LockDir: dir})
	must(t, older.AcquireInstanceLock(t.Context()))

	parts, ctx := errgroup.WithContext(t.Context())
	ctx, stop := context.WithCancel(ctx)
	parts.Go(func() error { return d.serveVolumes(ctx, parts) })
	time.Sleep(200 * time.Millisecond)
	if !suspended() || left.resumed.Load() {
		t.Error("a volume is resumed while another driver runs")
	}
	if err := older.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(wait.Limit(time.Minute)); suspended() || !left.resumed.Load(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("suspended: the volume %t, the mapping %t", suspended(), !left.resumed.Load())
		}
	}
	if err := d.ready.Ready(ctx); err == nil || !strings.Contains(err.Error(), "waits for the Kubernetes API") {
		t.Errorf("readiness says %v", err)
	}
	stop()
	if err := parts.Wait(); err != nil || left.blocked {
		t.Errorf("%v, resumed before the device below: %t", err, left.blocked)
	}
}

// TestRecoveryOfMappingsDoesNotHoldUpTheStart: a resume blocks while the device below is suspended, which the rest of the start may end. On a
// busy node the search for mappings takes as long where there is none, so the driver does not say that a volume waits.
func TestRecoveryOfMappingsDoesNotHoldUpTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDriver(t, &options{})
		var log strings.Builder
		d.log = slog.New(slog.NewTextHandler(&log, nil))
		d.mappings = hungMapping{}
		parts, ctx := errgroup.WithContext(t.Context())
		ctx, stop := context.WithCancel(ctx)
		began := time.Now()
		d.recoverMappings(ctx, parts)
		if waited := time.Since(began); waited != mappingPatience {
			t.Errorf("the start waited for %s", waited)
		}
		stop()
		if err := parts.Wait(); err != nil {
			t.Error(err)
		}
		if said := log.String(); !strings.Contains(said, "the start continues") || strings.Contains(said, "an encrypted volume cannot") {
			t.Errorf("the log says %s", said)
		}
	})
}

type hungMapping struct{}

func (hungMapping) Recover(ctx context.Context) error { return hungMapping{}.Resume(ctx) }

func (hungMapping) Resume(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestLastCluster(t *testing.T) {
	d := testDriver(t, &options{stateDir: t.TempDir()})
	for _, uid := range []string{"", "u-1", "u-2"} { // the node moves to another cluster
		if uid != "" {
			d.recordCluster(uid)
		}
		if got := d.lastCluster(); got != uid {
			t.Errorf("the last cluster is %q, want %q", got, uid)
		}
	}
	d.o.clusterID = "mine"
	if d.recordCluster("mine"); d.lastCluster() != "mine" {
		t.Errorf("with --cluster-id: %q", d.lastCluster())
	}
	if text, err := os.ReadFile(filepath.Join(d.o.stateDir, clusterFile)); err != nil || string(text) != "u-2\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
