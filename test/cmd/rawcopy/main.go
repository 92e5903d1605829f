// Command rawcopy copies a device to another node through TLS, and does nothing else: what TestMoveRate compares a move with.
//
//	rawcopy send DEVICE HOST:PORT     # waits for the one that receives
//	rawcopy receive DEVICE HOST:PORT  # prints the seconds from the connection to the flush
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"syscall"
	"time"
)

func main() {
	do := map[string]func(device, address string) error{"send": send, "receive": receive}
	if len(os.Args) != 4 || do[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: rawcopy send|receive DEVICE HOST:PORT")
		os.Exit(2)
	}
	if err := do[os.Args[1]](os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "rawcopy:", err)
		os.Exit(1)
	}
}

func send(device, address string) error {
	from, err := os.OpenFile(device, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", address, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: httptest.NewTLSServer(nil).TLS.Certificates})
	if err != nil {
		return err
	}
	c, err := listener.Accept()
	if err != nil {
		return err
	}
	return errors.Join(pass(c, from), c.Close())
}

func receive(device, address string) error {
	to, err := os.OpenFile(device, os.O_WRONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	begin := time.Now()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a measurement
	c, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	if err := errors.Join(pass(to, c), to.Sync()); err != nil {
		return err
	}
	fmt.Println(time.Since(begin).Seconds())
	return nil
}

// pass copies until the end. It reads while it writes.
func pass(to io.Writer, from io.Reader) error {
	const ahead, size = 8, 1 << 20
	free, full, ended := make(chan []byte, ahead), make(chan []byte, ahead), make(chan error, 1)
	for range ahead {
		b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE) // O_DIRECT needs whole pages
		if err != nil {
			return err
		}
		free <- b
	}
	go func() {
		defer close(full)
		for {
			b := <-free
			n, err := io.ReadFull(from, b[:size])
			if n > 0 {
				full <- b[:n]
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for b := range full {
		if _, err := to.Write(b); err != nil {
			return err
		}
		free <- b
	}
	if err := <-ended; !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return nil
}
