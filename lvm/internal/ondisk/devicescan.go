package ondisk

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// deviceScan reads all devices of a node once. A few workers read them in turn: on a busy machine, waking another thread costs
// more than the reading. An unresponsive device blocks its worker, and a new worker continues. The device delays this scan by
// its patience, and later scans not at all: they skip it until it has answered.
type deviceScan struct {
	disks *Disks
	read  func(d BlockDevice, before probe) probe
	ended chan struct{} // closed when all devices are read

	mu      sync.Mutex
	queue   []BlockDevice
	waiting map[string]BlockDevice // not read yet
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
			s.finish(s.unresponsive(device))
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

// work reads devices until the queue is empty.
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
		if (p.err != nil || p.MadeOf != MadeOfDisks) && s.disks.gone(device) {
			p = probe{device: device}
		} else if last, lost := p.lost(before); lost {
			p = last
		}
		finish(p)
		s.mu.Lock()
		s.finish(p)
		s.mu.Unlock()
	}
}

// unresponsive returns the probe of an unresponsive device.
func (s *deviceScan) unresponsive(device BlockDevice) probe {
	before, _ := s.disks.lastOf(device)
	return probe{device: device, label: before.label, areas: before.areas, unaccepted: before.unaccepted, err: errUnresponsive}
}

// finish records a device's probe, unless the scan has already given up the device. The caller holds s.mu.
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

// giveUp records the last answers of the devices whose patience has ended, replaces their workers, and returns when to check
// again.
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
		s.finish(s.unresponsive(device))
		if len(s.queue) > 0 {
			go s.work()
		}
	}
	return pause
}

// stop prevents the workers from starting another device.
func (s *deviceScan) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = nil
}
