package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// ServeDisks lets tests inside a node on emulated hardware act on its disks, at the returned address, until ctx ends. A connection takes one
// line, such as "pull nvme-a", and answers with a line: "done", or why it failed.
func (l *Lab) ServeDisks(ctx context.Context, node string) (address string, err error) {
	var listener net.Listener
	err = l.inNamespace(-1, func() (err error) {
		var config net.ListenConfig
		listener, err = config.Listen(ctx, "tcp", bridgeIP+":0")
		return err
	})
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // ctx has ended
			}
			answer := "done"
			if err := l.actOnDisk(ctx, node, conn); err != nil {
				answer = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			_, _ = fmt.Fprintln(conn, answer) // a test that has gone away needs no answer
			_ = conn.Close()
		}
	}()
	return listener.Addr().String(), nil
}

// actOnDisk does what one connection asks for.
func (l *Lab) actOnDisk(ctx context.Context, node string, conn net.Conn) error {
	line := bufio.NewScanner(conn)
	if !line.Scan() {
		return errors.Join(errors.New("no line"), line.Err())
	}
	action, disk, _ := strings.Cut(line.Text(), " ")
	return l.ActOnDisk(ctx, action, node, disk)
}
