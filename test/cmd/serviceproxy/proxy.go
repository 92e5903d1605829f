package main

import (
	"context"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os/exec"
	"sync"
	"time"
)

// proxy listens at the addresses of Services.
type proxy struct {
	device string
	open   map[string]*listener // by address
}

// listener accepts connections at one address.
type listener struct {
	net.Listener
	mu      sync.Mutex
	targets []string // guarded by mu
}

// serve listens at all addresses of wanted, and at no others. Connections of a removed address stay.
func (p *proxy) serve(ctx context.Context, wanted map[string][]string) {
	for at, l := range p.open {
		if _, ok := wanted[at]; !ok {
			_ = l.Close()
			delete(p.open, at)
		}
	}
	for at, targets := range wanted {
		l := p.open[at]
		if l == nil {
			var err error
			if l, err = p.listen(ctx, at); err != nil {
				log.Printf("%s: %v", at, err) // the next change of the cluster tries again
				continue
			}
			p.open[at] = l
			go l.accept(ctx)
		}
		l.mu.Lock()
		l.targets = targets
		l.mu.Unlock()
	}
}

// listen gives the device the address, which stays: the cluster may give it to another Service.
func (p *proxy) listen(ctx context.Context, at string) (*listener, error) {
	ip, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "ip", "addr", "replace", ip+"/32", "dev", p.device).CombinedOutput(); err != nil {
		return nil, &net.AddrError{Err: err.Error() + ": " + string(out), Addr: ip}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	return &listener{Listener: l}, err
}

func (l *listener) accept(ctx context.Context) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		go l.forward(ctx, conn)
	}
}

// forward connects to one of the endpoints, and copies until both sides have ended. Without an endpoint the client sees a reset.
func (l *listener) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	l.mu.Lock()
	targets := l.targets
	l.mu.Unlock()
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for _, i := range rand.Perm(len(targets)) {
		server, err := dialer.DialContext(ctx, "tcp", targets[i])
		if err != nil {
			log.Printf("%s: %v", l.Addr(), err)
			continue
		}
		join(client, server)
		return
	}
	if tcp, ok := client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// join copies both ways. The end of one direction is passed on, and the other continues.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
	_ = b.Close()
}
