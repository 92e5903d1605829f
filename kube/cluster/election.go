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

// leaseName is the name of the lease. It is that of earlier releases, so that a process of such a release and one of this release are
// never active at the same time, and the record on the lease stays.
const leaseName = "nodelvm-janitor"

// Election selects the active one of several processes. What they do is safe even without it: each change applies only to the version
// of the object for which it was decided.
type Election struct {
	Leases    coordinationclient.LeasesGetter
	Namespace string        // of the lease
	Holder    string        // this process's identity on the lease: the pod's name
	Lasts     time.Duration // how long the lease is valid after a renewal; 0: 15 s
	Record    Record
	Log       *slog.Logger

	leading bool // while true, the record is newer than that on the lease
}

// Record is what the active process stores on the lease for its successors, with each renewal.
type Record interface {
	Load(text string)
	Text() string
}

// Run waits until this process is elected, then runs lead, whose context ends if the lease is not renewed in time. It returns when ctx
// ends, after lead has returned and the lease is released. An error says that Lasts is invalid.
func (e *Election) Run(ctx context.Context, lead func(context.Context)) error {
	lasts := cmp.Or(e.Lasts, 15*time.Second)
	for ctx.Err() == nil {
		if err := e.stand(ctx, lasts, lead); err != nil {
			return err
		}
	}
	return nil
}

// stand takes part in one election. When ctx ends, lead returns before stand releases the lease. lead has returned when stand returns.
func (e *Election) stand(ctx context.Context, lasts time.Duration, lead func(context.Context)) error {
	standing, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	working := make(chan struct{}, 1) // full while lead runs
	e.leading = false
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: leaseName}, Client: recordedLeases{e, lasts},
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Holder},
		},
		LeaseDuration: lasts, RenewDeadline: lasts * 2 / 3, RetryPeriod: lasts / 5, ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				working <- struct{}{}
				defer func() { <-working }()
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(held, cancel)()
				if held.Err() == nil && ctx.Err() == nil {
					e.Log.InfoContext(ctx, "elected", "lease", e.Namespace+"/"+leaseName, "holder", e.Holder)
					lead(ctx)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		working <- struct{}{}
		defer func() { <-working }()
		leave()
	})()
	elector.Run(standing)
	if ctx.Err() == nil {
		e.Log.WarnContext(ctx, "lost the lease", "lease", e.Namespace+"/"+leaseName)
	}
	working <- struct{}{}
	return nil
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
	return l.LeaseInterface.Get(ctx, name, options)
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
	if err == nil {
		e.leading = ptr.Deref(lease.Spec.HolderIdentity, "") == e.Holder
	}
	return written, err
}
