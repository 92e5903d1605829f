package ondisk

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// deviceScan reads all devices of a node once. A few workers take them in turn: on a busy machine each further thread that
// must be woken costs more than the reading. A device that hangs takes its worker with it, and another one goes on; it
// delays this reading by its patience and later ones not at all, for it is not asked again until it has answered.
type deviceScan struct {
	disks *Disks
	read  func(d BlockDevice, before probe) probe
	ended chan struct{} // closed when all devices are done

	mu      sync.Mutex
	queue   []BlockDevice
	waiting map[string]BlockDevice // not done
	done    []probe
}

func (d *Disks) scanDevices(ctx context.Context, list []BlockDevice, r prober) ([]probe, error) {
	s := &deviceScan{disks: d, ended: make(chan struct{}), waiting: map[string]BlockDevice{}}
	s.read = r.probe
	if d.probe != nil {
		s.read = func(device BlockDevice, _ probe) probe { return d.probe(device) }
	}
	for _, device := range list {
		s.waiting[device.Name] = device
	}
	for _, device := range list {
		if since, owes := d.reading(device.Name); owes && time.Since(since) > s.patience(device) {
			s.finish(s.silent(device))
		} else {
			s.queue = append(s.queue, device)
		}
	}
	if len(s.queue) == 0 {
		return s.done, nil
	}
	workers := min(len(s.queue), 2*runtime.GOMAXPROCS(0))
	for range workers {
		go s.work()
	}
	for {
		pause := s.giveUp()
		select {
		case <-s.ended:
			return s.done, nil
		case <-ctx.Done():
			s.stop()
			return nil, fmt.Errorf("stopped waiting for the disks of this node: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (s *deviceScan) patience(device BlockDevice) time.Duration {
	_, answered := s.disks.lastOf(device)
	return s.disks.patience(answered)
}

// work reads devices until none is left.
func (s *deviceScan) work() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.mu.Unlock()
			return
		}
		device := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		before, _ := s.disks.lastOf(device)
		finish := s.disks.begin(device.Name)
		p := s.read(device, before)
		if (p.err != nil || p.Standing != StandsOnDisks) && s.disks.gone(device) {
			p = probe{device: device}
		}
		finish(p)
		s.mu.Lock()
		s.finish(p)
		s.mu.Unlock()
	}
}

// silent is what is to be said of a device that does not answer.
func (s *deviceScan) silent(device BlockDevice) probe {
	before, _ := s.disks.lastOf(device)
	return probe{device: device, label: before.label, areas: before.areas, err: errSilent}
}

// finish takes a device's answer, unless it was given up before. s.mu is held.
func (s *deviceScan) finish(p probe) {
	if _, wanted := s.waiting[p.device.Name]; !wanted {
		return
	}
	delete(s.waiting, p.device.Name)
	s.done = append(s.done, p)
	if len(s.waiting) == 0 {
		close(s.ended)
	}
}

// giveUp finishes the devices whose patience is over with what they said before, puts others in their workers' places,
// and answers when to look again.
func (s *deviceScan) giveUp() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := s.disks.patience(true)
	for _, device := range s.waiting {
		since, owes := s.disks.reading(device.Name)
		if !owes {
			continue
		}
		left := s.patience(device) - time.Since(since)
		if left > 0 {
			pause = min(pause, left)
			continue
		}
		s.finish(s.silent(device))
		if len(s.queue) > 0 {
			go s.work()
		}
	}
	return pause
}

// stop keeps the workers from taking another device.
func (s *deviceScan) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = nil
}
