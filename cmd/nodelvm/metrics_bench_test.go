package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// BenchmarkMetrics scrapes a driver as Prometheus does, with 0, 100 and 1,000 volumes in a group, all active and with the disks read at most
// twice a second. On a fake node, so without the time that the kernel takes.
func BenchmarkMetrics(b *testing.B) {
	for _, volumes := range []int{0, 100, 1000} {
		b.Run(strconv.Itoa(volumes), func(b *testing.B) {
			node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{8 * lvm.TiB}})
			fill(b, node, volumes)
			r := runOn(b, cachingHost(node))
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
			<-r.done
		})
	}
}

// fill creates active volumes of the cluster that run serves: one, and copies of it.
func fill(b *testing.B, node *lvmtest.Node, volumes int) {
	b.Helper()
	if volumes == 0 {
		return
	}
	h := node.HostOn(lvm.Config{Cluster: "cluster-1", ReadyDelay: time.Nanosecond}, lvm.Machine{})
	spec := lvm.Spec{Name: "pvc-0000", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, Required: lvm.GiB, Claim: "shop/data-0000"}
	v, err := h.Create(b.Context(), spec)
	if err == nil {
		_, err = h.Activate(b.Context(), v.ID, v.UUID) // makes it ready
	}
	if err != nil {
		b.Fatal(err)
	}
	copyOf := func(i int) (id lvm.ID, uuid string) {
		number := fmt.Sprintf("%04d", i)
		return lvm.ID{VG: v.ID.VG, LV: v.ID.LV + "-" + number}, v.UUID[:len(v.UUID)-4] + number
	}
	node.Change("vg", func(g *lvm.Group) {
		for i := 1; i < volumes; i++ {
			lv := g.LVs[0]
			id, uuid := copyOf(i)
			lv.Name, lv.UUID, lv.Tags = id.LV, uuid, slices.Clone(lv.Tags)
			for k, tag := range lv.Tags {
				lv.Tags[k] = strings.ReplaceAll(tag, "0000", fmt.Sprintf("%04d", i))
			}
			g.LVs = append(g.LVs, lv)
		}
	})
	for i := 1; i < volumes; i++ {
		id, uuid := copyOf(i)
		if _, err := h.Activate(b.Context(), id, uuid); err != nil {
			b.Fatal(err)
		}
	}
	if err := h.Close(context.WithoutCancel(b.Context())); err != nil {
		b.Fatal(err)
	}
}

// cachingHost is hostOn with the cache of a real driver.
func cachingHost(node *lvmtest.Node) func(lvm.Config) (*host.Host, error) {
	return func(cfg lvm.Config) (*host.Host, error) { return node.HostOn(cfg, lvm.Machine{}), nil }
}
