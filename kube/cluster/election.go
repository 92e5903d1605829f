package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

const leaseName = "nodelvm-controller"

// Election selects the active one of several processes. What they do is safe even without it: each change applies only to the version
// of the object for which it was decided.
type Election struct {
	Leases    coordinationclient.LeasesGetter
	Namespace string        // of the lease
	Holder    string        // this process's identity on the lease: the pod's name
	Lasts     time.Duration // how long the lease is valid after a renewal; 0: 15 s
	Record    Record
	Log       *slog.Logger

	leading bool   // while true, the record is newer than that on the lease
	leave   func() // ends the election in which this process stands
}

// Record is what the active process stores on the lease for its successors, with each renewal.
type Record interface {
	Load(text string)
	Text() string
}

// Run waits until this process is elected, then runs lead, whose context ends if the lease is not renewed in time or another process holds
// it. It returns when ctx ends, after lead has returned and the lease is released. An error says that Lasts is invalid.
func (e *Election) Run(ctx context.Context, lead func(context.Context)) error {
	lasts := cmp.Or(e.Lasts, 15*time.Second)
	for ctx.Err() == nil {
		if err := e.stand(ctx, lasts, lead); err != nil {
			return err
		}
	}
	return nil
}

// stand takes part in one election. client-go's elector must not release the lease (ReleaseOnCancel): it does that before it ends the
// context of lead. That context ends before the lease expires: at most RenewDeadline, a RetryPeriod and a request after the last renewal.
func (e *Election) stand(ctx context.Context, lasts time.Duration, lead func(context.Context)) error {
	standing, leave := context.WithCancel(ctx)
	defer leave()
	e.leading, e.leave = false, leave
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: leaseName}, Client: recordedLeases{e, lasts},
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Holder},
	}
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: lasts, RenewDeadline: lasts / 2, RetryPeriod: lasts / 5, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(ended)
				e.Log.InfoContext(ctx, "elected", "lease", e.Namespace+"/"+leaseName, "holder", e.Holder)
				lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(standing)
	if !e.leading {
		return nil // ctx has ended
	}
	if ctx.Err() == nil {
		e.Log.WarnContext(ctx, "lost the lease", "lease", e.Namespace+"/"+leaseName)
	}
	<-ended // the elector has ended the context of lead
	if err := e.release(context.WithoutCancel(ctx), lock); err != nil {
		e.Log.WarnContext(ctx, "cannot release the lease; it expires by itself", "lease", e.Namespace+"/"+leaseName, "error", err)
	}
	return nil
}

// release releases the lease, if this process holds it, so that the next one need not wait.
func (e *Election) release(ctx context.Context, lock *resourcelock.LeaseLock) error {
	held, _, err := lock.Get(ctx)
	if err != nil || held.HolderIdentity != e.Holder {
		return err
	}
	now := metav1.Now()
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: held.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
	})
}

// recordedLeases is the client of client-go's lock. It adds the record to what the lock writes, and limits the time of a request.
type recordedLeases struct {
	*Election
	lasts time.Duration
}

// Leases implements LeasesGetter.
func (l recordedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return recordedLease{l.Election.Leases.Leases(namespace), l.Election, l.lasts / 5}
}

type recordedLease struct {
	coordinationclient.LeaseInterface
	election *Election
	timeout  time.Duration
}

func (l recordedLease) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	lease, err := l.LeaseInterface.Get(ctx, name, options)
	if e := l.election; err == nil && e.leading && ptr.Deref(lease.Spec.HolderIdentity, "") != e.Holder {
		e.leave() // the elector would let lead work until RenewDeadline
	}
	return lease, err
}

func (l recordedLease) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, lease, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Create(ctx, lease, options)
	})
}

func (l recordedLease) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, lease, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Update(ctx, lease, options)
	})
}

// write takes the record of the previous holder from the lease, unless this process leads already, and stores the present one on it.
func (l recordedLease) write(ctx context.Context, lease *coordinationv1.Lease, send func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	e := l.election
	if !e.leading {
		e.Record.Load(lease.Annotations[api.AnnotationLosses])
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[api.AnnotationLosses] = e.Record.Text()
	written, err := send(ctx)
	e.leading = e.leading || err == nil
	return written, err
}
