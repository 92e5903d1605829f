package janitor

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// client-go's leader election needs the generated clientset, which would be in the memory of every node's process, because
// there is one binary. The lock below reads and writes the same Lease in the same way. The janitor's steps are safe even
// without it: each one applies only to the version of the object for which the janitor decided it.

// election selects the active one of several processes.
type election struct {
	client    *kubeclient.Client
	namespace string
	name      string
	holder    string
	lasts     time.Duration // how long the lock is valid after a renewal
	losses    *losses       // the holder stores them on the lease
	log       *slog.Logger

	leading bool // while true, losses is newer than the lease's annotation

	seen   string    // the lease's version when this process last saw it change
	seenAt time.Time // the time of that by this process's clock: no other clock is trusted
}

// leaseRounds is how often within its life the holder renews a lease, and the others read it.
const leaseRounds = 5

// run waits until this process is elected, then runs lead, whose context ends if the lock is not renewed in time. It
// returns when ctx ends, after it has released the lock.
func (e *election) run(ctx context.Context, lead func(context.Context)) {
	for ctx.Err() == nil {
		if held, err := e.renewOrAcquire(ctx); held {
			e.hold(ctx, lead)
		} else if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "cannot acquire the lease; retrying", "lease", e.namespace+"/"+e.name, "error", err)
		}
		kubeclient.Sleep(ctx, e.lasts/leaseRounds)
	}
}

// hold runs lead and renews the lock until ctx ends or the lock is lost.
func (e *election) hold(ctx context.Context, lead func(context.Context)) {
	e.log.InfoContext(ctx, "elected", "lease", e.namespace+"/"+e.name, "holder", e.holder)
	e.leading = true
	defer func() { e.leading = false }()
	leading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lead(leading)
	}()
	for renewed := time.Now(); leading.Err() == nil; kubeclient.Sleep(leading, e.lasts/leaseRounds) {
		held, err := e.renewOrAcquire(leading)
		switch {
		case held:
			renewed = time.Now()
		case err == nil, time.Since(renewed) > e.lasts/2:
			e.log.WarnContext(ctx, "lost the lease", "lease", e.namespace+"/"+e.name, "error", err)
			stop()
		}
	}
	stop()
	<-ended
	e.release(context.WithoutCancel(ctx))
}

// renewOrAcquire acquires or renews the lock; held is false while another process holds it.
func (e *election) renewOrAcquire(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.lasts/leaseRounds)
	defer cancel()
	lease, err := e.read(ctx)
	if err != nil {
		return false, err
	}
	now := metav1.NowMicro()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.name}}
		e.setHolder(lease, now)
		e.passLosses(lease)
		err := e.client.Leases.Post().Namespace(e.namespace).Resource("leases").Body(lease).Do(ctx).Error()
		return err == nil, kubeclient.UnlessConflict(err)
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != "" && holder != e.holder {
		if lease.ResourceVersion != e.seen {
			e.seen, e.seenAt = lease.ResourceVersion, time.Now()
		}
		if time.Since(e.seenAt) < time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second {
			return false, nil
		}
	}
	e.setHolder(lease, now)
	e.passLosses(lease)
	return e.write(ctx, lease)
}

func (e *election) setHolder(lease *coordinationv1.Lease, now metav1.MicroTime) {
	if ptr.Deref(lease.Spec.HolderIdentity, "") != e.holder {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &e.holder, &now
	lease.Spec.LeaseDurationSeconds = ptr.To(max(1, int32(e.lasts/time.Second)))
}

// passLosses takes the previous holder's losses from the lease, unless this process leads already, and stores them on it.
func (e *election) passLosses(lease *coordinationv1.Lease) {
	if !e.leading {
		e.losses.load(lease.Annotations[api.AnnotationLosses])
	}
	e.storeLosses(lease)
}

func (e *election) storeLosses(lease *coordinationv1.Lease) {
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[api.AnnotationLosses] = e.losses.text()
}

// release releases the lock, if this process holds it, so that the next one need not wait.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.lasts/leaseRounds)
	defer cancel()
	lease, err := e.read(ctx)
	if err == nil && lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == e.holder {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(""), ptr.To(metav1.NowMicro())
		e.storeLosses(lease)
		_, err = e.write(ctx, lease)
	}
	if err != nil {
		e.log.WarnContext(ctx, "cannot release the lease; it expires by itself", "error", err)
	}
}

func (e *election) read(ctx context.Context) (*coordinationv1.Lease, error) {
	var lease coordinationv1.Lease
	err := e.client.Leases.Get().Namespace(e.namespace).Resource("leases").Name(e.name).Do(ctx).Into(&lease)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &lease, err
}

// write returns false if another process has written meanwhile.
func (e *election) write(ctx context.Context, lease *coordinationv1.Lease) (bool, error) {
	err := e.client.Leases.Put().Namespace(e.namespace).Resource("leases").Name(e.name).Body(lease).Do(ctx).Error()
	return err == nil, kubeclient.UnlessConflict(err)
}
