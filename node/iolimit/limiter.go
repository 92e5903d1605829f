package iolimit

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Limiter sets the limits of devices in the cgroups of pods. The cgroups are the only record of what is set; the Limiter knows only which
// devices are lifted now, and in which cgroups it has set a limit.
type Limiter struct {
	cgroups *cgroups
	mu      sync.Mutex
	devices map[uint64]*device
}

// device is what the Limiter knows of one device. Its lock is held while the cgroups of the device change.
type device struct {
	mu     sync.Mutex
	lifted int
	pods   []string      // in whose cgroups it has a limit that this process set or found
	stuck  chan struct{} // closed when the write ends that did not end in time; nil: there is none
}

// New returns the Limiter of a node.
func New(c Config) *Limiter {
	c.Dir = filepath.Clean(c.Dir)
	if c.Write == nil {
		c.Write = writeOnce
	}
	return &Limiter{cgroups: &cgroups{Config: c}, devices: map[uint64]*device{}}
}

// Check returns an error (lvm.KindConflict) if the node's cgroups cannot limit I/O; it names the cgroup that prevents it. It enables the
// io controller for the pods if it can.
func (l *Limiter) Check() error { return l.cgroups.check() }

// LimitsOf returns the limits in the cgroup of a pod, by device. lvm.KindNotFound: it has no cgroup.
func (l *Limiter) LimitsOf(pod string) (map[uint64]lvm.Rates, error) {
	dir, err := l.cgroups.dirOf(pod)
	if err != nil {
		return nil, err
	}
	return l.cgroups.limitsIn(dir)
}

// Set limits a pod's I/O on a device; without rates it removes the limits. It writes nothing if they are set already, or while the device
// is lifted. lvm.KindNotFound: the pod has no cgroup, or the device is gone; lvm.KindBusy: the kernel does not answer; lvm.KindConflict:
// this node cannot limit I/O.
func (l *Limiter) Set(pod string, number uint64, r lvm.Rates) error {
	d := l.of(number)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lifted > 0 && (r != lvm.Rates{}) {
		return nil
	}
	return l.set(d, pod, number, r)
}

func (l *Limiter) set(d *device, pod string, number uint64, r lvm.Rates) error {
	dir, err := l.cgroups.dirOf(pod)
	var now map[uint64]lvm.Rates
	if err == nil {
		now, err = l.cgroups.limitsIn(dir)
	}
	if err == nil && now[number] != r {
		err = d.wait(number, func() error { return l.cgroups.set(dir, number, r) })
	}
	d.pods = slices.DeleteFunc(d.pods, func(p string) bool { return p == pod })
	if none := (r == lvm.Rates{}); err == nil && !none || none && lvm.KindOf(err) == lvm.KindBusy {
		d.pods = append(d.pods, pod)
	}
	return err
}

// Limited returns the pods in whose cgroups this process has set or found a limit of a device.
func (l *Limiter) Limited(number uint64) []string {
	d := l.of(number)
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.pods)
}

// Wait waits until a pod has a cgroup, for at most patience: the kubelet can mount a volume before it makes the cgroup, which it makes
// before it starts a container (k8s.io/kubernetes/pkg/kubelet, "SyncPod"). lvm.KindBusy: it still has none.
func (l *Limiter) Wait(ctx context.Context, pod string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := l.cgroups.dirOf(pod)
		if lvm.KindOf(err) != lvm.KindNotFound {
			return err
		}
		select {
		case <-ctx.Done():
			return lvm.Errorf(lvm.KindBusy, "%w; it makes one before it starts the pod's containers, and the driver then sets the I/O limits", err)
		case <-time.After(interval):
		}
	}
}

const (
	interval = 50 * time.Millisecond
	patience = 5 * time.Second // for one write; it waits only for the kernel's memory
)

// wait runs a write. One that does not end costs one goroutine for each device.
func (d *device) wait(of uint64, write func() error) error {
	notYet := func() error {
		return lvm.Errorf(lvm.KindBusy, "the kernel has not finished an earlier change of the I/O limits of the device %s: its disk may be unresponsive", number(of))
	}
	if d.stuck != nil {
		select {
		case <-d.stuck:
			d.stuck = nil
		default:
			return notYet()
		}
	}
	done, end := make(chan error, 1), make(chan struct{})
	go func() {
		done <- write()
		close(end)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		d.stuck = end
		return notYet()
	}
}

// Lift removes the limits of a device for these pods and those that the Limiter knows, until end is called. Set does nothing meanwhile; the
// caller sets the limits after end. A file system's freeze writes what its pods have made dirty, at their limits, while LVM holds the lock
// of the volume group.
func (l *Limiter) Lift(number uint64, pods []string) (end func()) {
	d := l.of(number)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lifted++
	for _, pod := range union(pods, d.pods) {
		_ = l.set(d, pod, number, lvm.Rates{}) // what remains limited only delays the caller
	}
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lifted--
	})
}

// Release removes the limits of a device that no pod uses any more: a limit that remained would delay the end of its file system.
func (l *Limiter) Release(number uint64) { l.Lift(number, nil)() }

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func (l *Limiter) of(number uint64) *device {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.devices[number]
	if d == nil {
		d = &device{}
		l.devices[number] = d
	}
	return d
}
