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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

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
func join(t *testing.T, leases coordinationclient.LeasesGetter, name string) *candidate {
	t.Helper()
	c := &candidate{}
	ctx, leave := context.WithCancel(t.Context())
	c.leave = leave
	e := &Election{Leases: leases, Namespace: "ns", Holder: name, Record: &c.record, Log: slog.New(slog.DiscardHandler)}
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
		a := join(t, clientset.CoordinationV1(), "a")
		time.Sleep(time.Minute)
		a.record.Load("of a")
		b := join(t, clientset.CoordinationV1(), "b")
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
		time.Sleep(7 * time.Second) // b asks after 3 to 6.6 seconds
		if !b.leads.Load() || b.record.Text() != "of a" {
			t.Errorf("b leads: %t, with the record %q", b.leads.Load(), b.record.Text())
		}
		b.leave()
		b.stopped.Wait()
	})
}

// silent is an API server that does not answer while down is true.
type silent struct {
	coordinationclient.LeasesGetter
	down *atomic.Bool
}

func (s silent) Leases(namespace string) coordinationclient.LeaseInterface {
	return silentLeases{s.LeasesGetter.Leases(namespace), s.down}
}

type silentLeases struct {
	coordinationclient.LeaseInterface
	down *atomic.Bool
}

func (s silentLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if s.down.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.LeaseInterface.Get(ctx, name, options)
}

func (s silentLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if s.down.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.LeaseInterface.Update(ctx, lease, options)
}

// TestLeaderEndsWithoutAPIServer: it works no longer than the lease is valid, and leads again later.
func TestLeaderEndsWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		a := join(t, silent{fake.NewClientset().CoordinationV1(), &down}, "a")
		time.Sleep(61 * time.Second) // a second after a renewal
		down.Store(true)
		time.Sleep(14 * time.Second)
		if a.leads.Load() {
			t.Error("it leads although the lease has expired")
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

// TestLeaderReleasesAfterItsWork: when the API server answers again after any time, no other process gets the lease before this one has
// ended its work.
func TestLeaderReleasesAfterItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		var down atomic.Bool
		var silence time.Duration
		var a *candidate
		clientset.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
			update, ok := action.(clienttesting.UpdateAction)
			if ok && !down.Load() && *update.GetObject().(*coordinationv1.Lease).Spec.HolderIdentity == "" && a.leads.Load() {
				t.Errorf("it releases the lease while it works, after %s without an API server", silence)
			}
			return down.Load(), nil, errors.New("no connection")
		})
		a = join(t, clientset.CoordinationV1(), "a")
		for silence = 5 * time.Second; silence < 15*time.Second; silence += time.Second / 4 {
			time.Sleep(30 * time.Second)
			down.Store(true)
			time.Sleep(silence)
			down.Store(false)
		}
		a.leave()
		a.stopped.Wait()
	})
}

// TestLeaderEndsWhenAnotherHoldsTheLease: it does not wait until it may no longer renew the lease.
func TestLeaderEndsWhenAnotherHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		var taken atomic.Bool
		clientset.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { // the fake has no versions
			return taken.Load(), nil, apierrors.NewConflict(coordinationv1.SchemeGroupVersion.WithResource("leases").GroupResource(), leaseName, nil)
		})
		a := join(t, clientset.CoordinationV1(), "a")
		time.Sleep(61 * time.Second) // a second after a renewal
		leases := clientset.CoordinationV1().Leases("ns")
		lease, err := leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity = ptr.To("b")
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		taken.Store(true)
		time.Sleep(5 * time.Second) // it asks every three seconds, and works a second longer
		if a.leads.Load() {
			t.Error("it leads although another process holds the lease")
		}
		a.leave()
		a.stopped.Wait()
		if lease, err = leases.Get(t.Context(), leaseName, metav1.GetOptions{}); err != nil || *lease.Spec.HolderIdentity != "b" {
			t.Errorf("it released the lease of another process: %+v, %v", lease, err)
		}
	})
}

// TestRecordIsOnTheLease: the leader stores its record with each renewal. A process with the same name, after a restart of the container,
// takes the record from the lease.
func TestRecordIsOnTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name, lease.Annotations = "ns", leaseName, map[string]string{api.AnnotationLosses: "of an earlier process"}
		lease.Spec.HolderIdentity = ptr.To("a")
		clientset := fake.NewClientset(lease)
		a := join(t, clientset.CoordinationV1(), "a")
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
