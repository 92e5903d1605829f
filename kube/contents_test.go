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

func (s snapshots) Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	_, err := s.LookupSnapshot(ctx, id)
	return lvm.Volume{}, err
}

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
	handleMoved   = "dddddd-dddd-dddd-dddd-dddd-dddd-dddddd/pvc"
)

// TestUnlabelledContent: the location of the snapshot or volume and the answer of the API server decide whether the node labels a
// content.
func TestUnlabelledContent(t *testing.T) {
	for name, test := range map[string]struct {
		handle       string
		volume       string
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

		"its volume is here":         {volume: handleHere, answer: http.StatusOK, asked: true, tried: true},
		"its volume has moved away":  {volume: handleMoved, answer: http.StatusOK, asked: true, tried: true},
		"its volume is not here":     {volume: handleNotHere},
		"another driver's volume":    {volume: "vol-0123"},
		"its volume is not readable": {volume: handleUnread, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Store(true)
				kubetest.Reply(w, test.answer, map[string]any{"apiVersion": kubeclient.SnapshotVersion.String(), "kind": "VolumeSnapshotContent"})
			}))
			client := kubetest.ClientOf(t, server)
			disks := snapshots{handleHere: nil, handleMoved: lvm.Errorf(lvm.KindConflict, "it is a former copy"), handleUnread: lvm.Errorf(lvm.KindInternal, "a disk does not answer")}
			agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: disks, Snapshots: true})
			tried, err := agent.labelContent(t.Context(), "old", unlabelled{uid: "u", version: "1", snapshot: test.handle, volume: test.volume})
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
	client := kubetest.ClientOf(t, server)
	NewAgent(Config{Client: client, Node: "node-1"}).watchUnlabelled(t.Context()) // it returns at once
	if probes.Load()+watches.Load() != 0 {
		t.Error("requested contents without Snapshots")
	}

	agent := NewAgent(Config{Client: client, Node: "node-1", Snapshots: true})
	agent.kindAgain = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		agent.watchUnlabelled(ctx)
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

// TestUnlabelledContentIsCheckedAgain: the agent checks a content whose source is not here again, and sends no request for that.
// It checks those of the snapshot controller too, and never those of other drivers.
func TestUnlabelledContentIsCheckedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1", Volumes: snapshots{}, Snapshots: true})
		defer agent.queue.ShutDown()
		made := func(name, driver, handle string) *kubeclient.Content {
			c := &kubeclient.Content{ObjectMeta: metav1.ObjectMeta{Name: name, UID: kubetest.TypesUID(name)}}
			c.Spec.Driver, c.Spec.Source.SnapshotHandle = driver, handle
			if name == "dynamic" {
				c.Spec.Source.VolumeHandle = handleNotHere
			}
			return stripUnlabelled(c).(*kubeclient.Content)
		}
		err := agent.unlabelled.Replace([]any{
			made("old", api.DriverName, handleNotHere), made("foreign", "other.io", handleNotHere), made("dynamic", api.DriverName, ""), made("without a source", api.DriverName, ""),
		}, "1")
		if err != nil || agent.queue.Len() != 2 {
			t.Fatalf("%d contents are checked, %v", agent.queue.Len(), err)
		}
		agent.next(t.Context())
		agent.next(t.Context())
		synctest.Wait()
		if agent.queue.Len() != 0 {
			t.Error("checked again at once")
		}
		time.Sleep(unlabelledInterval)
		synctest.Wait()
		if agent.queue.Len() != 2 {
			t.Error("not checked again")
		}
	})
}
