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

// The lab's network. It is the same in every lab, because each has its own namespace.
const (
	bridgeIP  = "10.88.0.1"    // the control plane, on the bridge
	serviceIP = "10.96.0.1"    // of the Service "kubernetes"
	dnsIP     = "10.96.0.10"   // of CoreDNS, in a lab with Services; elsewhere a look-up is refused at once
	services  = "10.96.0.0/16" // range of the Services
	apiPort   = 443
)

func (l *Lab) namespaceFile() string { return filepath.Join("/run/netns", l.netns) }

// createNamespace creates the lab's network namespace with a bridge and a tap device for each node.
func (l *Lab) createNamespace(ctx context.Context, nodes []node) error {
	if err := ip(ctx, "", "netns", "add", l.netns); err != nil {
		return err
	}
	var script strings.Builder
	fmt.Fprintf(&script, "link set lo up\nlink add br0 type bridge\naddr add %s/24 dev br0\nlink set br0 up\n", bridgeIP)
	// The API server itself has the address of its Service, so pods need no NAT rule and no kube-proxy to reach it.
	fmt.Fprintf(&script, "addr add %s/32 dev br0\naddr add %s/32 dev br0\n", serviceIP, dnsIP)
	for _, n := range nodes {
		fmt.Fprintf(&script, "tuntap add %[1]s mode tap\nlink set %[1]s master br0\nlink set %[1]s up\n", n.tap())
		fmt.Fprintf(&script, "route add %s via %s\n", n.podCIDR(), n.ip())
	}
	return ip(ctx, script.String(), "-netns", l.netns, "-batch", "-")
}

// deleteNamespace removes the namespace with its devices. Its processes must have ended.
func (l *Lab) deleteNamespace(ctx context.Context) error {
	if _, err := os.Stat(l.namespaceFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return ip(ctx, "", "netns", "delete", l.netns)
}

// namespaceID returns the kernel's name of the namespace, as in the ns/net links of /proc; "" if the namespace does not exist.
func (l *Lab) namespaceID() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(l.namespaceFile(), &st); errors.Is(err, unix.ENOENT) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return fmt.Sprintf("net:[%d]", st.Ino), nil
}

// inNamespace runs f on a thread in the lab's network namespace that is pinned to CPU core, unless core is negative. Processes and
// sockets that f creates stay in the namespace.
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

// onThrowawayThread runs f on a thread that then ends, and with it all that f changed of the thread: the runtime ends the thread of
// a goroutine that ends while locked to it. The process's first thread cannot end, and /proc shows its namespace as the process's,
// so f never runs on it.
func onThrowawayThread(f func()) {
	runtime.LockOSThread() // never unlocked, except on the first thread
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // it runs on another thread, because the first one is locked to the caller
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
		// A node without power does not answer at all: without these limits a connection to it would wait for a quarter of an hour.
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

// setUserTimeout limits how long sent data may stay unacknowledged (tcp(7), TCP_USER_TIMEOUT). It ignores errors: without the limit
// a connection only fails later.
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
