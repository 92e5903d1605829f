package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/report"
)

// BenchmarkMetrics scrapes a driver as Prometheus does, with 0, 100 and 1,000 volumes in a group, all active and with the disks read at most
// twice a second. On a fake node, so without the time that the kernel takes.
func BenchmarkMetrics(b *testing.B) {
	for _, volumes := range []int{0, 100, 1000} {
		b.Run(strconv.Itoa(volumes), func(b *testing.B) {
			node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{8 * lvm.TiB}})
			r := runOn(b, cachingHost(node, fill(b, node, volumes)))
			handler := newHTTPHandler(r.ready.Ready, pages{metrics: r.registry, guard: unguarded})
			request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, metricsPath, nil)
			request.Header.Set("Accept-Encoding", "gzip")
			for b.Loop() {
				reply := httptest.NewRecorder()
				if handler.ServeHTTP(reply, request); reply.Code != http.StatusOK {
					b.Fatal(reply.Code)
				}
			}
			r.stop()
			must(b, <-r.done)
		})
	}
}

// BenchmarkVolumeSeries gathers the series of 1,000 mounted volumes with limits, without and with what the kernel counts of them.
func BenchmarkVolumeSeries(b *testing.B) {
	for _, counted := range []bool{false, true} {
		b.Run(fmt.Sprintf("counted=%t", counted), func(b *testing.B) {
			n := report.Node{Cluster: "ours"}
			for i := range 1000 {
				v := entry(copyName(i), "ours", string(lvm.StateReady))
				v.FileSystem = &report.FileSystem{Type: "xfs", Size: 900, Used: 400, Available: 450, Inodes: 10, InodesUsed: 4, InodesFree: 6}
				if counted {
					v.IO = &report.IO{Reads: 3, Writes: 4, ReadBytes: 1500, WrittenBytes: 2000, ReadSeconds: 0.5, WriteSeconds: 2, WriteIOPSLimit: 100, WriteBandwidthLimit: 1 << 20}
				}
				n.Volumes = append(n.Volumes, v)
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(nodeCollector{read: func() report.Node { return n }, log: slog.New(slog.DiscardHandler)})
			handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
			request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, metricsPath, nil)
			request.Header.Set("Accept-Encoding", "gzip")
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(httptest.NewRecorder(), request)
			}
		})
	}
}

// copyName is in the provisioner's format: the logical volume has the same name.
func copyName(i int) string { return fmt.Sprintf("pvc-%08x-0000-4000-8000-000000000000", i) }

// fill creates active volumes of the cluster that run serves: one, and copies of it.
func fill(b *testing.B, node *lvmtest.Node, volumes int) (devices []lvm.Device) {
	b.Helper()
	if volumes == 0 {
		return nil
	}
	h := node.HostOn(lvm.Config{Cluster: "cluster-1", ReadyDelay: time.Nanosecond}, lvm.Machine{})
	spec := lvm.Spec{Name: copyName(0), Class: lvm.Class{Group: "vg", Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, Required: lvm.GiB, Claim: "shop/data"}
	v, err := h.Create(b.Context(), spec)
	if err == nil {
		_, err = h.Activate(b.Context(), v.ID, v.UUID) // makes it ready
	}
	must(b, err)
	uuidOf := func(i int) string { return fmt.Sprintf("%s%04d", v.UUID[:len(v.UUID)-4], i) }
	node.Change("vg", func(g *lvm.Group) {
		for i := 1; i < volumes; i++ {
			lv := g.LVs[0]
			lv.Name, lv.UUID, lv.Tags = copyName(i), uuidOf(i), slices.Clone(lv.Tags)
			for k, tag := range lv.Tags {
				lv.Tags[k] = strings.ReplaceAll(tag, copyName(0), copyName(i))
			}
			g.LVs = append(g.LVs, lv)
		}
	})
	for i := range volumes {
		uuid := v.UUID
		if i > 0 {
			uuid = uuidOf(i)
		}
		devices = append(devices, lvm.Device{UUID: lvm.DeviceUUID(v.ID.VG, uuid), Path: fmt.Sprintf("/dev/dm-%d", i), Number: unix.Mkdev(253, uint32(i))})
	}
	must(b, h.Close(context.WithoutCancel(b.Context())))
	return devices
}

// quickKernel is a fake kernel that answers at once what the fake computes from the whole group.
type quickKernel struct {
	lvm.Kernel
	devices []lvm.Device
}

func (k quickKernel) Devices() ([]lvm.Device, error) { return k.devices, nil }

func (quickKernel) Stacks(volumes []lvm.Device) (lvm.Stacks, error) {
	disks := map[string][]string{}
	for _, v := range volumes {
		disks[v.Path] = []string{"/dev/fakea"}
	}
	return lvm.Stacks{Disks: disks}, nil
}

// cachingHost is hostOn with the cache of a real driver.
func cachingHost(node *lvmtest.Node, devices []lvm.Device) func(lvm.Config) (*host.Host, error) {
	return func(cfg lvm.Config) (*host.Host, error) {
		return node.HostOn(cfg, lvm.Machine{Kernel: quickKernel{node.Kernel(), devices}}), nil
	}
}
