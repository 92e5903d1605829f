package move

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
)

// callCounter counts the calls of a connection.
type callCounter struct {
	net.Conn
	from          io.Reader // what arrives; nil: what the peer sends
	writes, reads int
	broken        error // of each write
}

func (c *callCounter) Write(b []byte) (int, error) {
	c.writes++
	if c.broken != nil {
		return 0, c.broken
	}
	return c.Conn.Write(b)
}

func (c *callCounter) Read(b []byte) (int, error) {
	if c.from == nil {
		return c.Conn.Read(b)
	}
	c.reads++
	return c.from.Read(b)
}

// TestSocketGathers: TLS sends a chunk with one call for each gatherSize, not for each record, and all of it has been sent when flush returns.
func TestSocketGathers(t *testing.T) {
	here, there := net.Pipe()
	key, err := newIdentity()
	must(t, err)
	received := make(chan []byte)
	go func() {
		c := tls.Client(there, key.clientTLS(key.id))
		var got bytes.Buffer
		_, _ = got.ReadFrom(io.LimitReader(c, int64(chunkSize)+2))
		received <- got.Bytes()
	}()
	calls := &callCounter{Conn: here}
	s := &socket{Conn: calls}
	c := tls.Server(s, key.serverTLS())
	_, err = c.Write([]byte{1}) // at once, and the handshake before it
	must(t, err)
	sent := bytes.Repeat([]byte("nodelvm"), int(chunkSize))[:chunkSize]
	calls.writes = 0
	s.gather()
	_, err = c.Write(sent)
	must(t, err)
	must(t, s.flush())
	if most := int(chunkSize)/gatherSize + 1; calls.writes > most {
		t.Errorf("TLS sent a chunk with %d calls, want at most %d", calls.writes, most)
	}
	calls.writes = 0
	_, err = c.Write([]byte{2})
	must(t, err)
	if want := append(append([]byte{1}, sent...), 2); calls.writes != 1 || !bytes.Equal(<-received, want) {
		t.Errorf("a byte after the flush took %d calls, or what arrived is not what was sent", calls.writes)
	}
}

// TestSocketFails: who flushes learns that nothing was sent.
func TestSocketFails(t *testing.T) {
	want := errors.New("broken")
	calls := &callCounter{broken: want}
	s := &socket{Conn: calls}
	s.gather()
	if _, err := s.Write([]byte("chunk")); err != nil || calls.writes != 0 {
		t.Errorf("a gathered write sent something: %v, %d calls", err, calls.writes)
	}
	if err := s.flush(); !errors.Is(err, want) {
		t.Errorf("flush on a broken connection: %v, want %v", err, want)
	}
}

// TestArrivesInFewCalls: what has arrived is received with one call for each arriveSize, not for each record.
func TestArrivesInFewCalls(t *testing.T) {
	sent := bytes.Repeat([]byte("nodelvm"), int(chunkSize))[:chunkSize]
	calls := &callCounter{from: bytes.NewReader(sent)}
	c, got := arrivingOn(calls), make([]byte, 0, chunkSize)
	for record := make([]byte, 16<<10); len(got) < len(sent); {
		n, err := c.Read(record)
		must(t, err)
		got = append(got, record[:n]...)
	}
	if most := int(chunkSize) / arriveSize; calls.reads > most || !bytes.Equal(got, sent) {
		t.Errorf("a chunk arrived with %d calls, want at most %d; or it is not what was sent", calls.reads, most)
	}
}
