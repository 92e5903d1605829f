package move

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
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
	var raw, copied []time.Duration
	for b.Loop() {
		raw = append(raw, rawCopy(b, bed))
		offer := bed.hold()
		id := bed.first(offer, testClass) // the file is there before, as a logical volume is
		start := time.Now()
		bed.receive(offer, isReceived)
		copied = append(copied, time.Since(start))
		must(b, bed.target.Discard(b.Context(), id, "target"))
		must(b, bed.source.Cancel(b.Context(), bed.id, "source"))
	}
	rate := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(size/lvm.MiB) / took[len(took)/2].Seconds()
	}
	b.ReportMetric(rate(raw), "raw-MiB/s")
	b.ReportMetric(rate(copied), "copy-MiB/s")
	b.ReportMetric(rate(copied)/rate(raw), "ratio")
}

// rawCopy sends the source's file through TLS and writes what arrives.
func rawCopy(b *testing.B, bed *bed) time.Duration {
	b.Helper()
	listener, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	must(b, err)
	defer func() { must(b, listener.Close()) }()
	path := filepath.Join(bed.engine.dir, "raw")
	must(b, os.WriteFile(path, make([]byte, len(bed.content)), 0o600))
	start := time.Now()
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
	return time.Since(start)
}
