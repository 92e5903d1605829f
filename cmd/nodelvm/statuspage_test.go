package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/report"
)

// unguarded admits all requests.
func unguarded(next http.Handler) http.Handler { return next }

// ask reads the page as the plugin does.
func (d *driver) ask(t *testing.T, classes map[string]map[string]string) report.Node {
	t.Helper()
	reply := httptest.NewRecorder()
	target := url.URL{Path: report.Path, RawQuery: report.Query(classes).Encode()}
	newHTTPHandler(d.ready.Ready, pages{metrics: d.registry, status: d.status, guard: unguarded}).ServeHTTP(reply, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target.String(), nil))
	var page report.Node
	if err := json.Unmarshal(reply.Body.Bytes(), &page); err != nil || reply.Code != http.StatusOK {
		t.Fatalf("%d: %v\n%s", reply.Code, err, reply.Body)
	}
	return page
}

// TestStatusPage: the page shows a node's volumes with the texts of the events, and runs no LVM command.
func TestStatusPage(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Tags: []string{"fast"}, Disks: []lvm.Bytes{10 * lvm.GiB, 10 * lvm.GiB}},
		lvmtest.Group{Name: "other", Disks: []lvm.Bytes{lvm.GiB}})
	r := run(t, node)
	ctrl := csi.NewControllerClient(dial(t, r.socket(t)))
	thick, thin := createRequest("pvc-1"), createRequest("pvc-2")
	thick.Parameters["csi.storage.k8s.io/pvc/namespace"], thick.Parameters["csi.storage.k8s.io/pvc/name"] = "shop", "data-0"
	thin.Parameters["layout"] = "thin"
	for _, request := range []*csi.CreateVolumeRequest{thick, thin} {
		if _, err := ctrl.CreateVolume(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	before := len(node.Commands())
	page := r.ask(t, map[string]map[string]string{
		"local": {"volumeGroup": "@fast"}, "typo": {"volumeGroup": "vg", "layuot": "thin"}, "nowhere": {"volumeGroup": "gone"},
		"odd": {"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "ntfs"}, "raid": {"volumeGroup": "other", "layout": "raid1"},
	})
	for _, c := range node.Commands()[before:] {
		if !strings.Contains(strings.Join(c.Args, " "), "nodelvm.state=creating") { // the deferred commit of the new volumes
			t.Errorf("the page cost a command: %s %q", c.Name, c.Args)
		}
	}
	if page.Node != "node-1" || page.Cluster != "cluster-1" || page.NotReady != "" || page.Version != version || len(page.Conditions) > 0 {
		t.Errorf("page %+v", page)
	}
	vg := page.Groups[slices.IndexFunc(page.Groups, func(g report.Group) bool { return g.Name == "vg" })]
	if len(page.Groups) != 2 || vg.Disks != 2 || vg.Size < 20*lvm.GiB-8*lvm.MiB || vg.Free >= vg.Size-lvm.GiB || vg.Tags[0] != "fast" {
		t.Errorf("groups %+v", page.Groups)
	}
	if pools := vg.Pools; len(pools) != 1 || pools[0].Name != lvm.DefaultPool || !pools[0].Zero || pools[0].Provisioned != lvm.GiB || pools[0].State != report.PoolWorks {
		t.Errorf("pools %+v", pools)
	}
	volumes := map[string]report.Volume{}
	for _, v := range page.Volumes {
		volumes[v.Name] = v
	}
	if v := volumes["pvc-1"]; len(volumes) != 2 || v.Claim != "shop/data-0" || v.Layout != string(lvm.LayoutLinear) || v.Size != lvm.GiB || v.Used != nil || v.ID != string(vg.UUID)+"/"+v.LV {
		t.Errorf("volumes %+v", volumes)
	}
	if v := volumes["pvc-2"]; v.Pool != lvm.DefaultPool || v.Used == nil || v.UUID == "" {
		t.Errorf("the thin volume %+v", v)
	}
	classes := map[string]report.Class{}
	for _, c := range page.Classes {
		classes[c.Name] = c
	}
	if c := classes["local"]; len(c.Offers) != 1 || c.Offers[0].Group != "vg" || c.Offers[0].Largest != vg.Free {
		t.Errorf("local %+v, and %s are free", c, vg.Free)
	}
	for name, says := range map[string]string{"typo": `unknown parameter "layuot"`, "odd": "ntfs"} {
		if !strings.Contains(classes[name].Error, says) {
			t.Errorf("%s: %+v does not say %q", name, classes[name], says)
		}
	}
	if c := classes["nowhere"]; c.Error != "" || len(c.Offers) != 0 {
		t.Errorf("nowhere %+v", c)
	}
	if c := classes["raid"]; len(c.Offers) != 1 || !strings.Contains(c.Offers[0].Obstacle, "has 1 disks, but the layout needs 2") {
		t.Errorf("raid %+v", c)
	}
}

// unreadableNode is a node whose disks cannot be read.
type unreadableNode struct{}

var errUnreadable = lvm.Errorf(lvm.KindInternal, "the disks hang")

func (unreadableNode) Inventory(context.Context) (report.Inventory, error) {
	return report.Inventory{}, errUnreadable
}

func (unreadableNode) CapacityByGroup(context.Context, lvm.Class) ([]report.Offer, error) {
	return nil, errUnreadable
}

// TestStatusPageWithUnreadableVolumeGroups: the page reports what the driver cannot read, and does not blame a storage class for it.
func TestStatusPageWithUnreadableVolumeGroups(t *testing.T) {
	p := newStatusPage(&options{}, func(context.Context) error { return nil }, func() report.Registration { return report.Registration{} })
	p.serve(document{host: unreadableNode{}, health: sick{}.Health})
	query := report.Query(map[string]map[string]string{"local": {"volumeGroup": "vg"}, "typo": {"volumeGroup": "vg", "layuot": "thin"}})["class"]
	page := p.page(t.Context(), query)
	told := strings.Join(page.Unknown, "\n")
	if !slices.Contains(page.Unknown, report.UnknownGroups+"the disks hang") || !strings.Contains(told, "the storage class local can get: the disks hang") {
		t.Errorf("unknown is %q", page.Unknown)
	}
	if len(page.Classes) != 1 || page.Classes[0].Name != "typo" || page.Classes[0].Error == "" {
		t.Errorf("classes %+v", page.Classes)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if page := p.page(ended, query); len(page.Classes) > 0 {
		t.Errorf("classes are looked at when nobody waits any more: %+v", page.Classes)
	}
}

// Faults of a node's groups, as the page tells them.
func TestStatusPageFaults(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}},
		lvmtest.Group{Name: "twin", Disks: []lvm.Bytes{lvm.GiB}}, lvmtest.Group{Name: "later", Disks: []lvm.Bytes{lvm.GiB}})
	r := run(t, node)
	thin := createRequest("pvc-2")
	thin.Parameters["layout"] = "thin"
	if _, err := csi.NewControllerClient(dial(t, r.socket(t))).CreateVolume(t.Context(), thin); err != nil {
		t.Fatal(err)
	}
	node.Change("vg", func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Thin != nil {
				g.LVs[i].Thin.Zero = false
			}
		}
	})
	node.Change("later", func(g *lvm.Group) { g.Name = "twin" })
	page := r.ask(t, map[string]map[string]string{"thin": {"volumeGroup": "vg", "layout": "thin"}})
	for _, g := range page.Groups {
		if want := g.Name == "twin"; want != strings.Contains(g.Problem, "2 volume groups on this node have the name twin") {
			t.Errorf("group %s: %q", g.Name, g.Problem)
		}
		if g.Name == "vg" && (len(g.Pools) != 1 || g.Pools[0].Zero) {
			t.Errorf("pools %+v", g.Pools)
		}
	}
	if c := page.Classes[0]; len(c.Offers) != 1 || !strings.Contains(c.Offers[0].Obstacle, "lvchange -Zy") {
		t.Errorf("class %+v", c)
	}
}

// A driver that waits tells why, and what the kubelet said is remembered.
func TestStatusPageBeforeReady(t *testing.T) {
	log, err := logs.New(&buffer{}, "error", "json")
	must(t, err)
	d := newDriver(&options{nodeName: "n", register: true, kubeletDir: t.TempDir()}, log)
	page := d.ask(t, nil)
	if page.NotReady != "the driver starts" || page.Checks.Registration.State != report.RegistrationWaiting || page.Checks.Kernel == "" {
		t.Errorf("page %+v", page)
	}
	kubelet := &registrar{log: log, heard: d.heard}
	for says, want := range map[*registration.RegistrationStatus]report.RegistrationState{
		{Error: "no such socket"}: report.RegistrationRefused, {PluginRegistered: true}: report.RegistrationDone,
	} {
		if _, err := kubelet.NotifyRegistrationStatus(t.Context(), says); err != nil {
			t.Fatal(err)
		}
		if got := d.ask(t, nil).Checks.Registration; got.State != want || got.Error != says.GetError() {
			t.Errorf("after %v: %+v", says, got)
		}
	}
	if got := newDriver(&options{nodeName: "n"}, log).ask(t, nil).Checks.Registration.State; got != report.RegistrationElsewhere {
		t.Errorf("without --kubelet-registration: %s", got)
	}
}
