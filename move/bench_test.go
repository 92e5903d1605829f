package move

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// BenchmarkCopy compares a copy, which is checksummed and verified, with a raw one of the same bytes through TLS: device, TLS, device,
// flush. They alternate in one run. NODELVM_TEST_MOVE_DIR is the folder of the files.
func BenchmarkCopy(b *testing.B) {
	const size = 256 * lvm.MiB
	bed := newBed(b, size, nil)
	for at := range bed.content {
		if bed.content[at] == 0 {
			bed.content[at] = byte(at>>3) | 1 // no zeroes: they would not be sent
		}
	}
	must(b, os.WriteFile(bed.engine.file(bed.id), bed.content, 0o600))
	var raw, copied cost
	target := filepath.Join(bed.engine.dir, "raw")
	must(b, os.WriteFile(target, make([]byte, size), 0o600))
	for b.Loop() {
		raw.add(b, func() { rawCopy(b, bed, target) })
		offer := bed.hold()
		id := bed.first(offer, testClass) // the file is there before, as a logical volume is
		copied.add(b, func() { bed.receive(offer, isReceived) })
		must(b, bed.target.Discard(b.Context(), id, "target"))
		must(b, bed.source.Cancel(b.Context(), bed.id, "source"))
	}
	rate := func(took []time.Duration) float64 { return float64(size/lvm.MiB) / median(took).Seconds() }
	perGiB := func(processor []time.Duration) float64 {
		return median(processor).Seconds() * float64(lvm.GiB) / float64(size)
	}
	b.ReportMetric(rate(raw.took), "raw-MiB/s")
	b.ReportMetric(rate(copied.took), "copy-MiB/s")
	b.ReportMetric(rate(copied.took)/rate(raw.took), "ratio")
	b.ReportMetric(perGiB(raw.processor), "raw-cpu-s/GiB")
	b.ReportMetric(perGiB(copied.processor), "copy-cpu-s/GiB")
	b.ReportMetric(perGiB(raw.processor)/perGiB(copied.processor), "cpu-ratio")
}

// cost is what each copy of one kind took, and the processor time of its source and its target together: other load on the machine changes that little.
type cost struct{ took, processor []time.Duration }

func (c *cost) add(b *testing.B, work func()) {
	b.Helper()
	used, start := processorTime(b), time.Now()
	work()
	c.took = append(c.took, time.Since(start))
	c.processor = append(c.processor, processorTime(b)-used)
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// rawCopy sends the source's file through TLS and writes what arrives.
func rawCopy(b *testing.B, bed *bed, path string) {
	b.Helper()
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	must(b, err)
	defer func() { must(b, listener.Close()) }()
	go func() {
		yieldToPods() // as a copy does
		c, err := listener.Accept()
		if err != nil {
			return
		}
		secure := tls.Server(c, bed.source.key.serverTLS())
		defer func() { _ = secure.Close() }()
		source, size, err := openDevice(bed.engine.file(bed.id), readAlone)
		if err != nil {
			return
		}
		defer func() { _ = source.Close() }()
		buffer := newBuffer()
		defer freeBuffer(buffer)
		_, _ = io.CopyBuffer(struct{ io.Writer }{secure}, io.NewSectionReader(source, 0, int64(size)), buffer)
	}()
	c, err := (&tls.Dialer{Config: bed.target.key.clientTLS(bed.source.key.id)}).DialContext(b.Context(), "tcp", listener.Addr().String())
	must(b, err)
	defer func() { _ = c.Close() }()
	target, _, err := openDevice(path, writeAlone)
	must(b, err)
	defer func() { must(b, target.Close()) }()
	buffer := newBuffer()
	defer freeBuffer(buffer)
	written := make(chan error)
	go func() {
		yieldToPods()
		var err error
		for at := int64(0); at < int64(len(bed.content)) && err == nil; at += int64(chunkSize) {
			if _, err = io.ReadFull(c, buffer); err == nil {
				_, err = target.WriteAt(buffer, at)
			}
		}
		written <- errors.Join(err, target.Sync())
	}()
	must(b, <-written)
}
