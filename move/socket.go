package move

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// crypto/tls writes and reads one record of 16 KiB at a time. Each would be a system call, 64 for a chunk on either node.
const (
	gatherSize = 256 << 10 // at most so much is sent with one call
	arriveSize = 256 << 10 // at most so much is received with one call
)

// socket is a connection of a source, below TLS. It sends in few calls what is written between gather and flush.
type socket struct {
	net.Conn
	mu       sync.Mutex // TLS may answer the peer meanwhile
	gathers  bool
	gathered []byte
}

func (s *socket) gather() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathers = true
}

func (s *socket) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathers = false
	return s.send()
}

func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gathers {
		return s.Conn.Write(b)
	}
	if len(s.gathered)+len(b) > gatherSize {
		if err := s.send(); err != nil {
			return 0, err
		}
	}
	s.gathered = append(s.gathered, b...)
	return len(b), nil
}

// send sends what is gathered. The caller holds mu.
func (s *socket) send() error {
	if len(s.gathered) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.gathered)
	s.gathered = s.gathered[:0]
	return err
}

// socketKey is the key of a request's socket in its context.
type socketKey struct{}

// withSocket is http.Server.ConnContext.
func withSocket(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, &c.(*tls.Conn).NetConn().(*boundedConn).socket)
}

// arriving is a connection of a target, below TLS. It receives in few calls.
type arriving struct {
	net.Conn
	buffered *bufio.Reader
}

func arrivingOn(c net.Conn) arriving { return arriving{c, bufio.NewReaderSize(c, arriveSize)} }

func (a arriving) Read(b []byte) (int, error) { return a.buffered.Read(b) }

// dialing dials with a dialer for a target.
func dialing(d net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return arrivingOn(c), nil
	}
}
