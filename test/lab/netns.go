package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The lab's network, the same in every lab: each has its own namespace.
const (
	bridgeIP  = "10.88.0.1"    // the lab's side of the bridge; the control plane
	serviceIP = "10.96.0.1"    // what pods know as the "kubernetes" Service
	services  = "10.96.0.0/16" // range of the Services
	apiPort   = 443
)

func (l *Lab) namespaceFile() string { return filepath.Join("/run/netns", l.netns) }

// createNamespace makes the lab's network namespace with a bridge and one tap
// device for each node.
func (l *Lab) createNamespace(ctx context.Context, nodes []node) error {
	if err := ip(ctx, "", "netns", "add", l.netns); err != nil {
		return err
	}
	var script strings.Builder
	fmt.Fprintf(&script, "link set lo up\nlink add br0 type bridge\naddr add %s/24 dev br0\nlink set br0 up\n", bridgeIP)
	// The API server itself answers at the address of its Service: no NAT rule
	// and no kube-proxy stands between a pod and the API.
	fmt.Fprintf(&script, "addr add %s/32 dev br0\n", serviceIP)
	for _, n := range nodes {
		fmt.Fprintf(&script, "tuntap add %[1]s mode tap\nlink set %[1]s master br0\nlink set %[1]s up\n", n.tap())
		fmt.Fprintf(&script, "route add %s via %s\n", n.podCIDR(), n.ip())
	}
	return ip(ctx, script.String(), "-netns", l.netns, "-batch", "-")
}

// deleteNamespace removes the namespace and with it every device in it. The
// processes in it must have ended before.
func (l *Lab) deleteNamespace(ctx context.Context) error {
	if _, err := os.Stat(l.namespaceFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return ip(ctx, "", "netns", "delete", l.netns)
}

// namespaceID answers the kernel's name of the namespace, as the ns/net links
// in /proc show it; "" when the namespace does not exist.
func (l *Lab) namespaceID() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(l.namespaceFile(), &st); errors.Is(err, unix.ENOENT) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return fmt.Sprintf("net:[%d]", st.Ino), nil
}

// inNamespace runs f on a thread that is in the lab's network namespace, and
// pinned to CPU core unless that is negative. What f starts or opens stays there.
func (l *Lab) inNamespace(core int, f func() error) error {
	done := make(chan error, 1)
	go onThrowawayThread(func() {
		done <- func() error {
			ns, err := unix.Open(l.namespaceFile(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("the lab is not up (no network namespace %s): %w", l.netns, err)
			}
			defer func() { _ = unix.Close(ns) }()
			if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network namespace %s: %w", l.netns, err)
			}
			if core >= 0 {
				var set unix.CPUSet
				set.Set(core % runtime.NumCPU())
				if err := unix.SchedSetaffinity(0, &set); err != nil {
					return fmt.Errorf("pin to CPU %d: %w", core, err)
				}
			}
			return f()
		}()
	})
	return <-done
}

// onThrowawayThread runs f on a thread that ends with it: a goroutine that
// ends while it is locked takes its thread along, and so whatever f changed of
// the thread. The process's first thread cannot end, and /proc shows its
// namespace as the process's, so it does not enter.
func onThrowawayThread(f func()) {
	runtime.LockOSThread() // and never unlocked
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // the first thread is ours, so this one runs on another
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
	runtime.UnlockOSThread()
}

// dial opens a connection from inside the lab's network namespace.
func (l *Lab) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := l.inNamespace(-1, func() (err error) {
		// A node that was cut off gives no answer at all: without these limits
		// a connection to it would wait for a quarter of an hour.
		d := net.Dialer{Timeout: 10 * time.Second, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}}
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		setUserTimeout(tcp, 15*time.Second)
	}
	return conn, nil
}

// setUserTimeout bounds how long sent data may stay unacknowledged (tcp(7),
// TCP_USER_TIMEOUT). It is best effort: without it an error only comes later.
func setUserTimeout(conn *net.TCPConn, limit time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
}

// ip runs iproute2's ip(8).
func ip(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
