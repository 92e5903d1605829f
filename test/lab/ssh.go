package lab

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	hostKeyFile   = "ssh_host_key" // all nodes have the same one
	clientKeyFile = "ssh_client_key"
)

// Exec runs argv in a node as root and returns its exit code. stdin, stdout and stderr may be nil; stdout and stderr may be the same
// pointer. It returns an error and the exit code -1 if it cannot run the command, if ctx ends, which kills the command, or if it loses
// the connection, because the node's kernel panicked for example. If a signal ended the command, it returns an error and 128.
func (l *Lab) Exec(ctx context.Context, node string, stdin io.Reader, stdout, stderr io.Writer, argv ...string) (int, error) {
	if len(argv) == 0 {
		return -1, errors.New("no command given")
	}
	if _, err := l.node(node); err != nil {
		return -1, err
	}
	return l.exec(ctx, node, stdin, stdout, stderr, argv...)
}

func (l *Lab) exec(ctx context.Context, node string, stdin io.Reader, stdout, stderr io.Writer, argv ...string) (int, error) {
	session, err := l.session(ctx, node)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", node, err)
	}
	defer func() { _ = session.Close() }()
	if stdout != nil && stdout == stderr { // package ssh copies each stream in a goroutine
		stdout = &lockedWriter{w: stdout}
		stderr = stdout
	}
	session.Stdin, session.Stdout, session.Stderr = stdin, stdout, stderr
	mark := fmt.Sprintf("LAB_EXEC=%d.%d", os.Getpid(), execCount.Add(1))
	if err := session.Start("export " + mark + "; exec " + shellQuote(argv)); err != nil {
		return -1, fmt.Errorf("%s: %w", node, err)
	}
	err = l.await(ctx, node, session)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, errContextEnded):
		return -1, errors.Join(fmt.Errorf("%s: %s: %w", node, argv[0], ctx.Err()), l.killMarked(ctx, node, mark))
	case errors.As(err, &exit) && exit.Signal() != "":
		return 128, fmt.Errorf("%s: %s: ended by signal %s", node, argv[0], exit.Signal())
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	default:
		return -1, fmt.Errorf("%s: %s: connection lost: %w", node, argv[0], err)
	}
}

// errContextEnded is await's error if its context ended first.
var errContextEnded = errors.New("the context ended")

// await waits until a session's command ends. A node whose kernel panics leaves the connection open: await returns NodeError's error.
func (l *Lab) await(ctx context.Context, node string, session *ssh.Session) error {
	done := make(chan error, 1)
	go func() { done <- session.Wait() }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return errContextEnded
		case <-tick.C:
			if !l.alive(node) {
				return cmp.Or(l.NodeError(), errors.New("the node ended"))
			}
		}
	}
}

// lockedWriter is a writer for several goroutines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// execCount numbers the commands of this process.
var execCount atomic.Int64

// killMarked kills a command in a node with its children. sshd does not forward signals to root's commands, so killMarked finds
// them by the mark in their environment.
func (l *Lab) killMarked(ctx context.Context, node, mark string) error {
	if !l.alive(node) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return l.run(ctx, node, "sh", "-c", killScript, "kill", mark)
}

// killScript kills every process with $1 in its environment. It ignores grep's exit status, which also reflects unreadable
// processes.
const killScript = `while marked=$(grep -lszx "$1" /proc/[0-9]*/environ); [ -n "$marked" ]; do
	for file in $marked; do
		pid=${file#/proc/}
		kill -KILL "${pid%/environ}"
	done
done 2>/dev/null`

// run is exec, but an exit code other than 0 is an error, and errors contain the command's output.
func (l *Lab) run(ctx context.Context, node string, argv ...string) error {
	var out strings.Builder
	code, err := l.exec(ctx, node, nil, &out, &out, argv...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w: %s", node, strings.Join(argv, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// shellQuote returns argv as one line for a POSIX shell: each word in single quotes.
func shellQuote(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// session opens a session on the connection to a node. It replaces a broken connection once.
func (l *Lab) session(ctx context.Context, node string) (*ssh.Session, error) {
	for try := 0; ; try++ {
		client, fresh, err := l.connection(ctx, node)
		if err != nil {
			return nil, err
		}
		session, err := client.NewSession()
		if err == nil || fresh || try > 0 {
			return session, err
		}
		l.forgetConnection(node)
	}
}

// connection returns the connection to a node, and opens it if there is none; fresh is true for a new one.
func (l *Lab) connection(ctx context.Context, node string) (client *ssh.Client, fresh bool, err error) {
	l.mu.Lock()
	client = l.connections[node]
	l.mu.Unlock()
	if client != nil {
		return client, false, nil
	}
	if client, err = l.connect(ctx, node); err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.connections[node]; other != nil { // another goroutine was faster
		_ = client.Close()
		return other, false, nil
	}
	l.connections[node] = client
	return client, true, nil
}

// sshAddress returns the address of a node's SSH server.
func sshAddress(name string) (string, error) {
	for _, n := range append(workers(maxNodes), golden) {
		if n.name() == name {
			return n.ip() + ":22", nil
		}
	}
	return "", fmt.Errorf("no node is called %q", name)
}

func (l *Lab) connect(ctx context.Context, name string) (*ssh.Client, error) {
	address, err := sshAddress(name)
	if err != nil {
		return nil, err
	}
	config, err := l.sshConfig()
	if err != nil {
		return nil, err
	}
	conn, err := l.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // limits the handshake
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

func (l *Lab) forgetConnection(node string) {
	l.mu.Lock()
	client := l.connections[node]
	delete(l.connections, node)
	l.mu.Unlock()
	if client != nil {
		_ = client.Close()
	}
}

func (l *Lab) sshConfig() (*ssh.ClientConfig, error) {
	client, err := readSigner(filepath.Join(l.systemDir(), clientKeyFile))
	if err != nil {
		return nil, err
	}
	host, err := readSigner(filepath.Join(l.systemDir(), hostKeyFile))
	if err != nil {
		return nil, err
	}
	return &ssh.ClientConfig{
		User:            "root",
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(client)},
		HostKeyCallback: ssh.FixedHostKey(host.PublicKey()),
	}, nil
}

func readSigner(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}

// writeSSHKeys creates the host key of the nodes and the client key of the lab.
func (l *Lab) writeSSHKeys() error {
	if err := writeSSHKey(filepath.Join(l.systemDir(), hostKeyFile)); err != nil {
		return err
	}
	client := filepath.Join(l.systemDir(), clientKeyFile)
	if err := writeSSHKey(client); err != nil {
		return err
	}
	signer, err := readSigner(client)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.systemDir(), "authorized_keys"), ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600)
}

func writeSSHKey(file string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}
