package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// snapshots is a node's disks: an error for each handle; all other snapshots are missing.
type snapshots map[string]error

func (s snapshots) LookupSnapshot(_ context.Context, id lvm.ID) (lvm.Snapshot, error) {
	err, there := s[id.String()]
	if !there {
		err = lvm.Errorf(lvm.KindNotLocal, "no such group")
	}
	return lvm.Snapshot{}, err
}

func (snapshots) Lookup(context.Context, lvm.ID) (lvm.Volume, error) { panic("not asked for") }

func (snapshots) ExtendBlock(context.Context, lvm.ID, lvm.Bytes, lvm.Bytes) (lvm.Volume, error) {
	panic("not called")
}

func (snapshots) Extend(context.Context, lvm.ID, lvm.Bytes, lvm.Bytes) (lvm.Volume, error) {
	panic("not asked for")
}

const (
	handleHere    = "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa/snap"
	handleNotHere = "bbbbbb-bbbb-bbbb-bbbb-bbbb-bbbb-bbbbbb/snap"
	handleUnread  = "cccccc-cccc-cccc-cccc-cccc-cccc-cccccc/snap"
)

// TestPreProvisionedContent: the location of the snapshot and the answer of the API server decide whether the node labels a
// content.
func TestPreProvisionedContent(t *testing.T) {
	for name, test := range map[string]struct {
		handle       string
		answer       int
		asked, tried bool
		failed       bool
	}{
		"here":                    {handle: handleHere, answer: http.StatusOK, asked: true, tried: true},
		"here, it changed":        {handle: handleHere, answer: http.StatusConflict, asked: true, tried: true},
		"here, it is gone":        {handle: handleHere, answer: http.StatusNotFound, asked: true, tried: true},
		"here, refused":           {handle: handleHere, answer: http.StatusForbidden, asked: true, tried: true, failed: true},
		"not here":                {handle: handleNotHere},
		"another driver's handle": {handle: "snap-0123"},
		"unreadable":              {handle: handleUnread, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Store(true)
				kubetest.Reply(w, test.answer, map[string]any{"apiVersion": kubeclient.SnapshotVersion.String(), "kind": "VolumeSnapshotContent"})
			}))
			defer server.Close()
			client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			disks := snapshots{handleHere: nil, handleUnread: lvm.Errorf(lvm.KindInternal, "a disk does not answer")}
			agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: disks, Snapshots: true})
			tried, err := agent.labelContent(t.Context(), "old", preProvisioned{uid: "u", version: "1", handle: test.handle})
			if tried != test.tried || (err != nil) != test.failed || asked.Load() != test.asked {
				t.Errorf("tried %v, asked %v, %v", tried, asked.Load(), err)
			}
		})
	}
}

// TestContentWatchNeedsSnapshotAPI: a driver without csi-snapshotter never requests contents, and one in a cluster
// without the snapshot API only polls for that.
func TestContentWatchNeedsSnapshotAPI(t *testing.T) {
	var known atomic.Bool
	var probes, watches atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("labelSelector") == "!"+api.LabelManagedBy {
			watches.Add(1)
		} else {
			probes.Add(1)
		}
		if !known.Load() || r.URL.Query().Get("watch") != "" {
			http.NotFound(w, r)
			return
		}
		kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": kubeclient.SnapshotVersion.String(), "kind": "VolumeSnapshotContentList", "metadata": map[string]any{"resourceVersion": "1"}})
	}))
	defer server.Close()
	client, err := kubeclient.NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	NewAgent(Config{Client: client, Node: "node-1"}).watchPreProvisioned(t.Context()) // it returns at once
	if probes.Load()+watches.Load() != 0 {
		t.Error("requested contents without Snapshots")
	}

	agent := NewAgent(Config{Client: client, Node: "node-1", Snapshots: true})
	agent.kindAgain = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		agent.watchPreProvisioned(ctx)
	}()
	eventually(t, "asked again", func() bool { return probes.Load() > 2 })
	if watches.Load() != 0 {
		t.Error("watched contents without the snapshot API")
	}
	known.Store(true)
	eventually(t, "watched", func() bool { return watches.Load() > 0 })
	cancel()
	<-ended
}

// TestPreProvisionedContentIsCheckedAgain: the agent checks a content without its snapshot again, and sends no request for that.
// It never checks the contents of other drivers and of the snapshot controller.
func TestPreProvisionedContentIsCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1", Volumes: snapshots{}, Snapshots: true})
		defer agent.queue.ShutDown()
		made := func(name, driver, handle string) *kubeclient.Content {
			c := &kubeclient.Content{ObjectMeta: metav1.ObjectMeta{Name: name, UID: kubetest.TypesUID(name)}}
			c.Spec.Driver, c.Spec.Source.SnapshotHandle = driver, handle
			return stripPreProvisioned(c).(*kubeclient.Content)
		}
		err := agent.preProvisioned.Replace([]any{
			made("old", api.DriverName, handleNotHere), made("foreign", "other.io", handleNotHere), made("dynamic", api.DriverName, ""),
		}, "1")
		if err != nil || agent.queue.Len() != 1 {
			t.Fatalf("%d contents are checked, %v", agent.queue.Len(), err)
		}
		agent.next(t.Context())
		synctest.Wait()
		if agent.queue.Len() != 0 {
			t.Error("checked again at once")
		}
		time.Sleep(preProvisionedInterval)
		synctest.Wait()
		if agent.queue.Len() != 1 {
			t.Error("not checked again")
		}
	})
}
