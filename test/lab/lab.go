package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxDir limits the length of a lab's folder in bytes: the path of a UNIX socket below it may have at most 107 (unix(7)).
const maxDir = 70

// maxNodes limits the number of workers.
const maxNodes = 9

// Lab is one cluster. Its state is in a folder: all processes that open the same folder see the same lab. Its methods are safe for
// concurrent use.
type Lab struct {
	dir      string // the state folder
	cache    string // cacheDir's folder
	checkout string
	netns    string // name of the network namespace, derived from dir
	versions versions
	gates    featureGates

	mu          sync.Mutex
	connections map[string]*ssh.Client // by node; guarded by mu

	restarting sync.RWMutex // held for writing while a process of the control plane is replaced
	central    bool         // the snapshot-controller runs without --enable-distributed-snapshotting
}

// UpOptions say what Up starts.
type UpOptions struct {
	// Nodes is the number of worker nodes, at most 9; 0 means 3.
	Nodes int
	// ControlPlane starts a Kubernetes cluster. Without it the lab has only nodes with blank disks, for tests of LVM.
	ControlPlane bool
	// Services starts CoreDNS and a proxy of Services, for operators and their webhooks. It needs a control plane.
	Services bool
	// Hardware lets qemu emulate the nodes, with two processors, NVMe and SCSI disks and Debian's stock kernel. Such a node is some ten times
	// slower.
	Hardware bool
	// Arch is the emulated nodes' processor, named as GOARCH; "" means amd64.
	Arch string
	// HardwareSuite is the Debian suite of the emulated nodes' kernel; "" means that of their root image.
	HardwareSuite string
	// Progress, if not nil, receives a line for each step; on a terminal the line of the running step is live.
	Progress io.Writer
}

// state is what a later process must know about a lab. It is in lab.json.
type state struct {
	Nodes         int
	ControlPlane  bool
	Services      bool
	Hardware      bool   // qemu emulates the nodes
	Arch          string // as in UpOptions
	HardwareSuite string // as in UpOptions
	RootImage     string // the nodes' disks are copy-on-write files over it
	Binaries      binaries
	FeatureGates  featureGates
	Complete      bool // Up has succeeded
}

func (s state) role() role {
	if s.ControlPlane {
		return roleWorker
	}
	return roleBlank
}

// Open returns the lab with the state folder dir; "" means $NODELVM_LAB or, if that is not set, the folder "lab" of the cache. It
// starts nothing. The working directory must be inside the checkout, because Open reads versions.env.
func Open(dir string) (*Lab, error) {
	v, checkout, err := loadVersions()
	if err != nil {
		return nil, err
	}
	gates, err := parseFeatureGates(os.Getenv(EnvFeatureGates))
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
		dir: dir, cache: cache, checkout: checkout, versions: v, gates: gates,
		netns:       "nodelvm-lab-" + hash(dir)[:8],
		connections: map[string]*ssh.Client{},
	}, nil
}

// Share returns the host folder that every node has, read-write, at /mnt/lab. Give a changed file a new name: a node may still
// cache the old content.
func (l *Lab) Share() string { return filepath.Join(l.dir, "share") }

// Logs returns the folder of all logs: the nodes', the control plane's, the builds'.
func (l *Lab) Logs() string { return filepath.Join(l.Share(), "logs") }

// systemDir returns the folder of the files that the lab gives the nodes; they have it at /mnt/lab/.lab.
func (l *Lab) systemDir() string { return filepath.Join(l.Share(), ".lab") }

func (l *Lab) logFile(name string) string { return filepath.Join(l.Logs(), name+".log") }

// Up starts the lab. It returns when the nodes accept commands; with a control plane, when every node is Ready. If a complete lab
// with the same options runs, Up does nothing; any other lab in the folder it stops first. If Up fails, it stops what it started,
// and keeps the logs.
func (l *Lab) Up(ctx context.Context, opt UpOptions) (err error) {
	if opt.Nodes == 0 {
		opt.Nodes = 3
	}
	if opt.Nodes < 1 || opt.Nodes > maxNodes {
		return fmt.Errorf("%d nodes: want 1 to %d", opt.Nodes, maxNodes)
	}
	if opt.Services && !opt.ControlPlane {
		return errors.New("a lab without a control plane has no Services: use `lab up --services` without --no-kubernetes")
	}
	opt.Arch = cmp.Or(opt.Arch, thisArch)
	if _, known := platforms[opt.Arch]; !known {
		return fmt.Errorf("the lab has no nodes with the processor %s: want one of %s", opt.Arch, strings.Join(slices.Sorted(maps.Keys(platforms)), ", "))
	}
	if (opt.HardwareSuite != "" || opt.Arch != thisArch) && !opt.Hardware {
		return errors.New("only nodes on emulated hardware have a kernel of another suite, or another processor: use `lab up --hardware`")
	}
	if opt.Arch != thisArch && opt.ControlPlane {
		return errors.New("a node with another processor joins no cluster, because Kubernetes is compiled for this machine: use `lab up --hardware --no-kubernetes`")
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

// Down kills all processes of the lab, also of an incomplete one, and removes its network namespace, disks and state. It keeps the
// logs and the share.
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
	for _, name := range []string{"lab.json", "nodes", "uml", "run", "pki", "etcd", "bin", "s3"} {
		errs = append(errs, os.RemoveAll(filepath.Join(l.dir, name)))
	}
	return errors.Join(append(errs, os.RemoveAll(l.systemDir()))...)
}

// isUp reports whether a complete lab with these options runs.
func (l *Lab) isUp(opt UpOptions) bool {
	st, err := l.loadState()
	if err != nil || !st.Complete || st.Nodes != opt.Nodes || st.ControlPlane != opt.ControlPlane || st.Services != opt.Services || st.Hardware != opt.Hardware || st.Arch != opt.Arch || st.HardwareSuite != opt.HardwareSuite || !maps.Equal(st.FeatureGates, l.gates) {
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
	if st.Services {
		names = append(names, servicesNames...)
	}
	for _, n := range workers(st.Nodes) {
		names = append(names, n.name())
	}
	return names
}

func (l *Lab) stateFile() string { return filepath.Join(l.dir, "lab.json") }

// loadState reads lab.json. If no lab is up, the error says how to start one.
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

// Arch returns the processor of the running lab's nodes, named as GOARCH.
func (l *Lab) Arch() string {
	st, err := l.loadState()
	if err != nil {
		return thisArch
	}
	return st.Arch
}

func (l *Lab) nodes() ([]node, error) {
	st, err := l.loadState()
	if err != nil {
		return nil, err
	}
	return workers(st.Nodes), nil
}

// NodeNames returns the names of the running lab's nodes, in order; none if no lab is up.
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
