package groupsnap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// mapper records the requests to device-mapper.
type mapper struct {
	lvm.Kernel
	mu        sync.Mutex
	requests  []string
	suspended map[string]bool
	before    func(request string) error
}

func (m *mapper) request(text string) error {
	var err error
	if m.before != nil {
		err = m.before(text)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.requests = append(m.requests, text)
	}
	return err
}

func (m *mapper) SuspendDevice(uuid string, suspend bool) error {
	if err := m.request(map[bool]string{true: "suspend ", false: "resume "}[suspend] + uuid); err != nil {
		return err
	}
	m.set(uuid, suspend)
	return nil
}

func (m *mapper) set(uuid string, suspended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspended[uuid] = suspended
}

func (m *mapper) MessagePool(_, text string) error { return m.request(text) }

func (m *mapper) IsSuspended(path string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspended[strings.TrimPrefix(path, "/dev/")], nil
}

func (m *mapper) did() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.requests, ", ")
}

func (m *mapper) stopped() (uuids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uuid, is := range m.suspended {
		if is {
			uuids = append(uuids, uuid)
		}
	}
	return uuids
}

// stallOf returns a stall of volumes a, b, ... The second one is encrypted.
func stallOf(volumes int) (*stall, *mapper) {
	m := &mapper{suspended: map[string]bool{}}
	s := &stall{kernel: m, limit: time.Minute}
	for i := range volumes {
		name := string(rune('a' + i))
		o := origin{name: name, uuid: name, path: "/dev/" + name}
		if i == 1 {
			o.mapping = func() (func() error, error) {
				return func() error { return m.SuspendDevice("crypt", false) }, m.SuspendDevice("crypt", true)
			}
		}
		s.origins = append(s.origins, o)
		s.retakes = append(s.retakes, retake{name: "s" + name, pool: "pool", id: 10 + i, origin: 1 + i})
	}
	return s, m
}

func noRetry(t *testing.T) func(func() error) {
	t.Helper()
	return func(func() error) { t.Error("a device could not be resumed") }
}

// TestOrder: each snapshot is taken while all volumes are suspended, and a mapping is suspended before the volume below it and resumed
// after it.
func TestOrder(t *testing.T) {
	s, m := stallOf(2)
	if _, err := s.run(noRetry(t)); err != nil {
		t.Fatal(err)
	}
	want := "suspend crypt, suspend a, suspend b, delete 10, create_snap 10 1, delete 11, create_snap 11 2, resume b, resume a, resume crypt"
	if got := m.did(); got != want {
		t.Errorf("did  %s\nwant %s", got, want)
	}
}

// TestEachFailureResumes: after the failure of any request nothing is suspended, no later snapshot is taken, and the stall fails.
func TestEachFailureResumes(t *testing.T) {
	for _, failing := range []string{"suspend crypt", "suspend a", "suspend b", "delete 10", "create_snap 10 1", "delete 11", "create_snap 11 2"} {
		t.Run(failing, func(t *testing.T) {
			s, m := stallOf(2)
			m.before = func(request string) error {
				if request == failing {
					return unix.EIO
				}
				return nil
			}
			if _, err := s.run(noRetry(t)); !errors.Is(err, unix.EIO) {
				t.Errorf("the error is %v", err)
			}
			if left := m.stopped(); len(left) > 0 {
				t.Errorf("suspended: %v", left)
			}
		})
	}
}

// TestForeignResume: no snapshot counts as taken if another program resumes a volume, before or after.
func TestForeignResume(t *testing.T) {
	for _, at := range []string{"suspend b", "delete 10", "create_snap 11 2"} {
		t.Run(at, func(t *testing.T) {
			s, m := stallOf(2)
			m.before = func(request string) error {
				if request == at {
					m.set("a", false)
				}
				return nil
			}
			_, err := s.run(noRetry(t))
			if lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "another program resumed volume a") {
				t.Errorf("the error is %v", err)
			}
			if at == "suspend b" && strings.Contains(m.did(), "create_snap") {
				t.Errorf("did %s", m.did())
			}
		})
	}
}

// TestWatchdog: while a request blocks, the watchdog resumes what is suspended; when the request ends, its device is resumed too, and the
// stall fails, even if that request took the last snapshot.
func TestWatchdog(t *testing.T) {
	for _, blocks := range []string{"suspend b", "delete 10", "create_snap 11 2"} {
		t.Run(blocks, func(t *testing.T) {
			s, m := stallOf(3)
			s.limit = 10 * time.Millisecond
			m.before = func(request string) error {
				if request == blocks {
					wait.For(t, time.Minute, "the watchdog resumes the others", func() bool { return len(m.stopped()) == 0 })
				}
				return nil
			}
			stalled, err := s.run(noRetry(t))
			if lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "longer than") {
				t.Errorf("the error is %v", err)
			}
			if left := m.stopped(); len(left) > 0 {
				t.Errorf("suspended: %v", left)
			}
			if stalled < s.limit {
				t.Errorf("the stall took %s", stalled)
			}
		})
	}
}

// TestUnresumable: what cannot be resumed is retried in the background, and the rest is resumed.
func TestUnresumable(t *testing.T) {
	s, m := stallOf(3)
	m.before = func(request string) error {
		if request == "resume b" {
			return unix.EIO
		}
		return nil
	}
	var later []func() error
	_, err := s.run(func(resume func() error) { later = append(later, resume) })
	if err == nil || !strings.Contains(err.Error(), "dmsetup resume") {
		t.Errorf("the error is %v", err)
	}
	if left := m.stopped(); !slices.Equal(left, []string{"b"}) || len(later) != 1 {
		t.Errorf("suspended: %v; %d to retry", left, len(later))
	}
	m.before = nil
	for _, resume := range later {
		if err := resume(); err != nil {
			t.Error(err)
		}
	}
	if left := m.stopped(); len(left) > 0 {
		t.Errorf("suspended: %v", left)
	}
}

// TestGoneDevice: a volume whose device no longer exists is resumed.
func TestGoneDevice(t *testing.T) {
	s, m := stallOf(1)
	m.before = func(request string) error {
		if request == "resume a" {
			return fmt.Errorf("resume: %w", unix.ENXIO)
		}
		return nil
	}
	if _, err := s.run(noRetry(t)); err != nil {
		t.Error(err)
	}
}
