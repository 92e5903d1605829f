package host

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// suspender is an Encryptor of which resume fails so many times.
type suspender struct {
	fails   int32
	kind    lvm.Kind // of a failure
	resumes atomic.Int32
	resumed chan struct{}
	refuses error
}

func (s *suspender) Mapping(string) (string, uint64, bool, error) { return "/dev/dm-7", 7, true, nil }

func (s *suspender) Unstage(context.Context, string) error { return nil }

func (s *suspender) Erase(context.Context, lvm.Volume, string, func() error) error { return nil }

func (s *suspender) Suspend(string) (func() error, error) {
	return func() error {
		if s.resumes.Add(1) <= s.fails {
			return lvm.Errorf(s.kind, "no memory")
		}
		close(s.resumed)
		return nil
	}, s.refuses
}

// TestSuspendEnds: a mapping is resumed when LVM is done, and after the time limit at the latest: then the snapshot does not count.
func TestSuspendEnds(t *testing.T) {
	v := lvm.Volume{Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}
	for name, test := range map[string]struct {
		fails int32
		late  bool
		kind  lvm.Kind // 0: no error
	}{
		"in time":             {0, false, 0},
		"at the third try":    {2, false, 0},
		"late":                {0, true, lvm.KindBusy},
		"late, and third try": {2, true, lvm.KindBusy},
	} {
		t.Run(name, func(t *testing.T) {
			s := &suspender{fails: test.fails, resumed: make(chan struct{})}
			h := NewHostOn(lvm.Config{Encryption: s}, lvm.Machine{})
			limit := time.Hour
			if test.late {
				limit = time.Nanosecond
			}
			resume, err := h.suspend(v, limit)
			check.Must(t, err)
			if test.late {
				<-s.resumed
			}
			err = resume()
			if test.kind == 0 && err != nil || test.kind != 0 && lvm.KindOf(err) != test.kind {
				t.Errorf("it ends with %v", err)
			}
			if n := s.resumes.Load(); n != test.fails+1 {
				t.Errorf("the mapping was resumed %d times", n)
			}
		})
	}
	s := &suspender{refuses: lvm.Errorf(lvm.KindInternal, "no such device")}
	if _, err := NewHostOn(lvm.Config{Encryption: s}, lvm.Machine{}).suspend(v, time.Hour); err == nil {
		t.Error("a mapping that cannot be suspended")
	}
	if resume, err := NewHostOn(lvm.Config{Encryption: s}, lvm.Machine{}).suspend(lvm.Volume{}, 0); err != nil || resume() != nil {
		t.Errorf("a volume without encryption: %v", err)
	}
}

// TestResumeIsRetried: a mapping that cannot be resumed after a snapshot is retried in the background; one that another program has
// resumed is not.
func TestResumeIsRetried(t *testing.T) {
	for kind, resumes := range map[lvm.Kind]int32{lvm.KindInternal: 6, lvm.KindBusy: 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &suspender{fails: 5, kind: kind, resumed: make(chan struct{})}
			h := NewHostOn(lvm.Config{Encryption: s}, lvm.Machine{})
			resume, err := h.suspend(lvm.Volume{Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}, time.Hour)
			check.Must(t, err)
			if err := resume(); lvm.KindOf(err) != kind {
				t.Errorf("the snapshot counts: %v", err)
			}
			time.Sleep(time.Hour)
			if n := s.resumes.Load(); n != resumes {
				t.Errorf("kind %d: %d attempts, want %d", kind, n, resumes)
			}
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
