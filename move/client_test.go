package move

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestSourceStopsSending: an attempt ends within minutes, wherever in its answer the source stops, and even if it sends byte after byte.
func TestSourceStopsSending(t *testing.T) {
	key, err := newIdentity()
	must(t, err)
	for what, answer := range map[string]string{
		"no answer":     "",
		"busy":          "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\n{",
		"an error":      "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\nno",
		"no end of one": "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n",
		"a chunk":       fmt.Sprintf("HTTP/1.1 200 OK\r\n%s: %d\r\n\r\n%s", sizeHeader, lvm.MiB, header(frameData, bytes.Repeat([]byte("x"), int(chunkSize)))),
	} {
		for _, drips := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, drips %t", what, drips), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { getFromStopping(t, key, answer, drips) })
			})
		}
	}
}

func getFromStopping(t *testing.T, key identity, answer string, drips bool) {
	t.Helper()
	offer := Offer{Address: "192.0.2.1:1", Key: key.id, Volume: lvm.ID{VG: sourceVG, LV: "pvc"}.String(), Size: lvm.MiB}
	c, err := newClient(offer, &job{transfer: &transfer{size: lvm.MiB}}, key, func() (string, error) { return "token", nil })
	must(t, err)
	stop := stoppingSource(t, c, key, answer, drips)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	began := time.Now()
	err = c.get(ctx, span{0, 1}, false, func() []byte { return make([]byte, chunkSize) }, func(int64, frame, []byte) error { return nil })
	if took := time.Since(began); err == nil || took > 5*time.Minute {
		t.Errorf("after %s: %v", took, err)
	}
}

// stoppingSource lets a client connect to a source that sends the start of an answer, and then nothing or a byte in each second.
func stoppingSource(t *testing.T, c *client, key identity, answer string, drips bool) (stop func()) {
	t.Helper()
	near, far := net.Pipe()
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("the client's transport is %T", c.http.Transport)
	}
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
	var work sync.WaitGroup
	work.Go(func() {
		conn := tls.Server(far, key.serverTLS())
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			t.Errorf("the request: %v", err)
			return
		}
		work.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // the client's last words, which it sends under locks
		_, err := io.WriteString(conn, answer)
		for drips && err == nil {
			time.Sleep(time.Second)
			_, err = io.WriteString(conn, "x")
		}
	})
	return func() {
		c.close()
		_, _ = near.Close(), far.Close()
		work.Wait()
	}
}
