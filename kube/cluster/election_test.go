package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nodelvm/nodelvm/api"
)

// text is a record.
type text struct {
	mu   sync.Mutex
	text string
}

func (r *text) Load(text string) { r.mu.Lock(); defer r.mu.Unlock(); r.text = text }
func (r *text) Text() string     { r.mu.Lock(); defer r.mu.Unlock(); return r.text }

// candidate is a process that takes part in elections.
type candidate struct {
	record  text
	leads   atomic.Bool
	leave   context.CancelFunc
	stopped sync.WaitGroup
}

// join starts a candidate, which works a second longer than it may.
func join(t *testing.T, clientset *fake.Clientset, name string) *candidate {
	t.Helper()
	c := &candidate{}
	ctx, leave := context.WithCancel(t.Context())
	c.leave = leave
	e := &Election{Leases: clientset.CoordinationV1(), Namespace: "ns", Holder: name, Record: &c.record, Log: slog.New(slog.DiscardHandler)}
	c.stopped.Go(func() {
		err := e.Run(ctx, func(ctx context.Context) {
			if c.leads.Swap(true) {
				t.Errorf("%s leads twice at once", name)
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			c.leads.Store(false)
		})
		if err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestOneOfTwoLeads: the second candidate leads as soon as the first has ended its work, and knows its record.
func TestOneOfTwoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		a := join(t, clientset, "a")
		time.Sleep(time.Minute)
		a.record.Load("of a")
		b := join(t, clientset, "b")
		time.Sleep(time.Minute)
		if !a.leads.Load() || b.leads.Load() {
			t.Fatalf("a leads: %t, b leads: %t", a.leads.Load(), b.leads.Load())
		}
		a.leave()
		time.Sleep(time.Second / 2)
		if !a.leads.Load() || b.leads.Load() {
			t.Errorf("while a ends its work, a leads: %t, b leads: %t", a.leads.Load(), b.leads.Load())
		}
		a.stopped.Wait()
		time.Sleep(5 * time.Second) // b asks every three seconds or a little later
		if !b.leads.Load() || b.record.Text() != "of a" {
			t.Errorf("b leads: %t, with the record %q", b.leads.Load(), b.record.Text())
		}
		b.leave()
		b.stopped.Wait()
	})
}

// TestLeaderEndsWithoutAPIServer: it works no longer than the lease is valid, and leads again later.
func TestLeaderEndsWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		var down atomic.Bool
		clientset.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("no connection")
		})
		a := join(t, clientset, "a")
		time.Sleep(time.Minute)
		down.Store(true)
		time.Sleep(16 * time.Second)
		if a.leads.Load() {
			t.Error("it leads although it cannot renew the lease")
		}
		down.Store(false)
		time.Sleep(20 * time.Second)
		if !a.leads.Load() {
			t.Error("it does not lead again")
		}
		a.leave()
		a.stopped.Wait()
	})
}

// TestRecordIsOnTheLease: the leader stores its record with each renewal. A process with the same name, after a restart of the container,
// takes the record from the lease.
func TestRecordIsOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name, lease.Annotations = "ns", leaseName, map[string]string{api.AnnotationLosses: "of an earlier process"}
		lease.Spec.HolderIdentity = new(string)
		*lease.Spec.HolderIdentity = "a"
		clientset := fake.NewClientset(lease)
		a := join(t, clientset, "a")
		time.Sleep(time.Second)
		if got := a.record.Text(); got != "of an earlier process" {
			t.Errorf("its record is %q", got)
		}
		a.record.Load("newer")
		time.Sleep(5 * time.Second)
		stored, err := clientset.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), "ns", leaseName)
		if err != nil || stored.(*coordinationv1.Lease).Annotations[api.AnnotationLosses] != "newer" {
			t.Errorf("on the lease: %+v, %v", stored, err)
		}
		a.leave()
		a.stopped.Wait()
	})
}
