package groupsnap

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Limit is how long the volumes of a group snapshot may be suspended. Then a watchdog resumes them, and the group snapshot fails.
const Limit = 5 * time.Second

// The watchdog tries again after resumePause what it cannot resume.
const resumePause = time.Second

// origin is an active volume to suspend.
type origin struct {
	name    string                                // for messages
	uuid    string                                // of its device
	path    string                                // the same
	mapping func() (resume func() error, _ error) // suspends the mapping of an encrypted volume; nil for another one
}

// retake is a reserved snapshot that becomes one of the stall.
type retake struct {
	name       string // for messages
	pool       string // UUID of the pool's device
	id, origin int    // numbers in the pool
}

// stall suspends volumes, and retakes their snapshots meanwhile.
type stall struct {
	kernel  lvm.Kernel
	limit   time.Duration
	origins []origin
	retakes []retake

	state atomic.Int32
	mu    sync.Mutex
	held  []func() error // resume what is suspended, in this order; each gets called once, by run or by the watchdog
	late  sync.WaitGroup // the watchdog
}

// The states of a stall: exactly one of the last two follows the first.
const (
	running int32 = iota
	taken         // all snapshots are taken, and nothing was resumed before
	expired       // the watchdog resumes
)

// run suspends the volumes, takes the snapshots and resumes. The duration is from the first suspended volume to the last resumed. On an error no
// snapshot is one of the stall. It needs no disk but those of the volumes: the caller has prepared everything. A volume that cannot be
// resumed is retried in the background by retry, and the error says so.
func (s *stall) run(retry func(resume func() error)) (stalled time.Duration, err error) {
	defer spareDisks()()
	began := time.Now()
	if len(s.origins) == 0 {
		return 0, s.retakeAll()
	}
	s.late.Add(1)
	watchdog := time.AfterFunc(s.limit, func() {
		defer s.late.Done()
		s.state.CompareAndSwap(running, expired)
		_ = s.resumeAll(retry) // it retries in the background
	})
	err = s.suspendAll()
	if err == nil {
		err = s.retakeAll()
	}
	if err == nil && !s.state.CompareAndSwap(running, taken) {
		err = errExpired
	}
	err = errors.Join(err, s.resumeAll(retry))
	if watchdog.Stop() {
		s.late.Done()
	}
	s.late.Wait()
	stalled = time.Since(began)
	if errors.Is(err, errExpired) {
		err = lvm.Errorf(lvm.KindBusy, "the volumes were suspended for longer than %s, so the driver resumed them: a disk is slow, or a file system has much to write; retry", s.limit)
	}
	return stalled, err
}

// errExpired: the watchdog was first.
var errExpired = errors.New("the time limit has passed")

// suspendAll suspends the mappings first: to freeze a file system, the kernel writes to the volume below.
func (s *stall) suspendAll() error {
	for _, o := range s.origins {
		if o.mapping == nil {
			continue
		}
		resume, err := o.mapping()
		if err != nil {
			return fmt.Errorf("cannot suspend volume %s: %w", o.name, err)
		}
		if err := s.hold(resume); err != nil {
			return err
		}
	}
	for _, o := range s.origins {
		if err := s.kernel.SuspendDevice(o.uuid, true); err != nil {
			return lvm.Errorf(lvm.KindBusy, "cannot suspend volume %s (is its file system frozen?): %w", o.name, err)
		}
		if err := s.hold(func() error { return s.resume(o) }); err != nil {
			return err
		}
	}
	return s.checkSuspended()
}

// resume resumes a volume; one that no longer exists is resumed.
func (s *stall) resume(o origin) error {
	err := s.kernel.SuspendDevice(o.uuid, false)
	if err == nil || errors.Is(err, unix.ENXIO) {
		return nil
	}
	return lvm.Errorf(lvm.KindInternal, "volume %s is suspended, which blocks its pods; continue it with dmsetup resume --uuid %s: %w", o.name, o.uuid, err)
}

// checkSuspended verifies in sysfs that each volume is suspended: the pool would take a snapshot of one that is not, too.
func (s *stall) checkSuspended() error {
	for _, o := range s.origins {
		is, err := s.kernel.IsSuspended(o.path)
		if err != nil {
			return fmt.Errorf("cannot determine whether volume %s is suspended: %w", o.name, err)
		}
		if !is {
			return lvm.Errorf(lvm.KindBusy, "another program resumed volume %s; retry", o.name)
		}
	}
	return nil
}

// retakeAll takes each snapshot again, and checks that every volume was suspended all the time.
func (s *stall) retakeAll() error {
	for _, r := range s.retakes {
		for _, message := range []string{fmt.Sprintf("delete %d", r.id), fmt.Sprintf("create_snap %d %d", r.id, r.origin)} {
			if s.state.Load() == expired {
				return errExpired
			}
			if err := s.kernel.MessagePool(r.pool, message); err != nil {
				return fmt.Errorf("the thin pool of snapshot %s refuses %q: %w", r.name, message, err)
			}
		}
	}
	return s.checkSuspended()
}

// hold notes what resumes a device that is suspended now.
func (s *stall) hold(resume func() error) error {
	s.mu.Lock()
	s.held = append(s.held, resume)
	s.mu.Unlock()
	if s.state.Load() == expired {
		return errExpired
	}
	return nil
}

// resumeAll resumes what is suspended, the last first. It may run twice at a time: while one call blocks in the kernel, the other resumes
// the rest.
func (s *stall) resumeAll(retry func(resume func() error)) (failures error) {
	for {
		s.mu.Lock()
		last := len(s.held) - 1
		if last < 0 {
			s.mu.Unlock()
			return failures
		}
		resume := s.held[last]
		s.held = s.held[:last]
		s.mu.Unlock()
		if err := resume(); err != nil {
			if lvm.KindOf(err) != lvm.KindBusy { // that kind: it was resumed before
				retry(resume)
			}
			failures = errors.Join(failures, err)
		}
	}
}

// spareDisks makes the kernel find memory for this thread without a write to a disk (PR_SET_IO_FLUSHER, prctl(2)): that disk may be
// suspended. The watchdog's thread is another one.
func spareDisks() (end func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0) // best effort: it needs Linux 5.6 and CAP_SYS_RESOURCE
	return func() {
		_ = unix.Prctl(unix.PR_SET_IO_FLUSHER, 0, 0, 0, 0)
		runtime.UnlockOSThread()
	}
}
