package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxDir bounds the length of a lab's folder in bytes: the path of a UNIX
// socket below it may have 107 at most (unix(7)).
const maxDir = 70

// maxNodes bounds the number of workers.
const maxNodes = 9

// Lab is one cluster in a box. Its state is a folder: any process that opens
// the same folder sees the same lab. Its methods may be called concurrently.
type Lab struct {
	dir      string // the state folder
	cache    string // built things
	checkout string
	netns    string // name of the network namespace, derived from dir
	versions versions

	mu          sync.Mutex
	connections map[string]*ssh.Client // by node; guarded by mu
}

// UpOptions say what Up raises.
type UpOptions struct {
	// Nodes is the number of worker nodes, 3 if zero, 9 at most.
	Nodes int
	// ControlPlane asks for a Kubernetes cluster. Without it there are only
	// nodes with blank disks, for tests of LVM alone.
	ControlPlane bool
	// Progress, if set, gets every step; a terminal gets a live line.
	Progress io.Writer
}

// state is what a later process must know of a lab; kept in lab.json.
type state struct {
	Nodes        int
	ControlPlane bool
	RootImage    string // the nodes' disks are copy-on-write files over it
	Binaries     binaries
	Complete     bool // Up has come to its end
}

func (s state) role() role {
	if s.ControlPlane {
		return roleWorker
	}
	return roleBlank
}

// Open answers the lab whose state is in the folder dir, "" for $NODELVM_LAB
// or else the folder "lab" of the cache. It starts nothing. The working
// directory must be inside the checkout, for versions.env.
func Open(dir string) (*Lab, error) {
	v, checkout, err := loadVersions()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = os.Getenv("NODELVM_LAB")
	}
	if dir == "" {
		dir = filepath.Join(cache, "lab")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if len(dir) > maxDir || strings.ContainsAny(dir, " ,\"'\\\n") {
		return nil, fmt.Errorf("lab folder %q: want at most %d bytes, and no space, comma, quote or backslash", dir, maxDir)
	}
	return &Lab{
		dir: dir, cache: cache, checkout: checkout, versions: v,
		netns:       "nodelvm-lab-" + hash(dir)[:8],
		connections: map[string]*ssh.Client{},
	}, nil
}

// Share is the host's folder that every node sees, read-write, at /mnt/lab.
// Give a changed file a new name: a node may keep the old content in its cache.
func (l *Lab) Share() string { return filepath.Join(l.dir, "share") }

// Logs is the folder of all logs: the nodes', the control plane's, the builds'.
func (l *Lab) Logs() string { return filepath.Join(l.Share(), "logs") }

// systemDir holds what the nodes get from the lab; they see it at /mnt/lab/.lab.
func (l *Lab) systemDir() string { return filepath.Join(l.Share(), ".lab") }

func (l *Lab) logFile(name string) string { return filepath.Join(l.Logs(), name+".log") }

// Up starts the lab and returns when it takes commands; with a control plane,
// when every node is Ready. A complete lab with the same options is left as it
// is; anything else that is there is taken down first. When Up fails, it takes
// down what it has started and leaves the logs.
func (l *Lab) Up(ctx context.Context, opt UpOptions) (err error) {
	if opt.Nodes == 0 {
		opt.Nodes = 3
	}
	if opt.Nodes < 1 || opt.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: want 1 to %d", opt.Nodes, maxNodes)
	}
	if os.Getuid() != 0 {
		return errors.New("the lab needs root: it makes a network namespace and tap devices")
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if l.isUp(opt) {
		return nil
	}
	if err := l.checkSpace(opt.ControlPlane); err != nil {
		return err
	}
	if err := l.clear(ctx); err != nil {
		return fmt.Errorf("clear what an earlier lab left: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.clear(context.WithoutCancel(ctx)))
		}
	}()
	return l.raise(ctx, opt, newProgress(opt.Progress))
}

// Down ends every process of the lab and removes its network namespace, disks
// and state, whatever state it is in. The logs and the share stay.
func (l *Lab) Down(ctx context.Context) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return l.clear(ctx)
}

// lock excludes Up and Down of the same lab from each other.
func (l *Lab) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	return lockFile(ctx, filepath.Join(l.dir, "lock"))
}

func (l *Lab) clear(ctx context.Context) error {
	for _, n := range append(workers(maxNodes), golden) {
		l.forgetConnection(n.name())
	}
	if err := l.killLab(); err != nil {
		return err
	}
	if err := l.deleteNamespace(ctx); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"lab.json", "nodes", "uml", "run", "pki", "etcd", "bin"} {
		errs = append(errs, os.RemoveAll(filepath.Join(l.dir, name)))
	}
	return errors.Join(append(errs, os.RemoveAll(l.systemDir()))...)
}

// isUp tells whether a complete lab with these options runs already.
func (l *Lab) isUp(opt UpOptions) bool {
	st, err := l.loadState()
	if err != nil || !st.Complete || st.Nodes != opt.Nodes || st.ControlPlane != opt.ControlPlane {
		return false
	}
	for _, name := range l.daemonNames(st) {
		if !l.alive(name) {
			return false
		}
	}
	return true
}

// daemonNames lists all long-running processes of a lab.
func (l *Lab) daemonNames(st state) []string {
	var names []string
	if st.ControlPlane {
		names = append(names, controlPlaneNames...)
	}
	for _, n := range workers(st.Nodes) {
		names = append(names, n.name())
	}
	return names
}

func (l *Lab) stateFile() string { return filepath.Join(l.dir, "lab.json") }

// loadState fails with a sentence for the user when no lab is up.
func (l *Lab) loadState() (state, error) {
	var st state
	b, err := os.ReadFile(l.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return st, fmt.Errorf("no lab is up in %s: raise one with `lab up`", l.dir)
	}
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(b, &st)
}

func (l *Lab) saveState(st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return os.WriteFile(l.stateFile(), b, 0o644)
}

func (l *Lab) nodes() ([]node, error) {
	st, err := l.loadState()
	if err != nil {
		return nil, err
	}
	return workers(st.Nodes), nil
}

// NodeNames lists the nodes of the running lab, in order; none if no lab is up.
func (l *Lab) NodeNames() []string {
	nodes, err := l.nodes()
	if err != nil {
		return nil
	}
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.name()
	}
	return names
}
