package lab

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

//go:embed files/init.sh
var initScript string

//go:embed files/sshd_config
var sshdConfig string

// raise starts the lab in an empty state folder.
func (l *Lab) raise(ctx context.Context, opt UpOptions, p *progress) error {
	if err := l.prepareDirs(); err != nil {
		return err
	}
	st := state{Nodes: opt.Nodes, ControlPlane: opt.ControlPlane, Services: opt.Services, Hardware: opt.Hardware, Arch: opt.Arch, HardwareSuite: opt.HardwareSuite, FeatureGates: l.gates}
	if err := l.prepare(ctx, &st, p); err != nil {
		return err
	}
	if err := l.saveState(st); err != nil {
		return err
	}
	nodes := workers(opt.Nodes)
	if err := errors.Join(l.writeNodeFiles(ctx), l.createNamespace(ctx, nodes)); err != nil {
		return err
	}
	if opt.ControlPlane {
		if err := l.raiseControlPlane(ctx, st, nodes, p); err != nil {
			return err
		}
	}
	if err := l.sayKernel(ctx, p); err != nil {
		return err
	}
	err := p.step("boot nodes", func(tell teller) error {
		return each(nodes, tell, func(n node) (string, error) {
			return n.name(), l.firstBoot(ctx, l.machineOf(n, st))
		})
	})
	if err == nil && opt.ControlPlane {
		err = p.step("nodes Ready", func(tell teller) error { return l.waitReady(ctx, nodes, tell) })
	}
	if err != nil {
		return err
	}
	st.Complete = true
	return l.saveState(st)
}

func (l *Lab) raiseControlPlane(ctx context.Context, st state, nodes []node, p *progress) error {
	return p.step("control plane", func(teller) error {
		if err := errors.Join(l.writeWorkerFiles(nodes), os.WriteFile(l.auditPolicy(), []byte(auditRules), 0o600)); err != nil {
			return err
		}
		if err := l.startControlPlane(st.Binaries, "etcd", "kube-apiserver"); err != nil {
			return err
		}
		if err := l.waitAPI(ctx); err != nil {
			return err
		}
		if err := l.applySnapshotCRDs(ctx, st.Binaries); err != nil {
			return err
		}
		if err := l.startControlPlane(st.Binaries, "kube-controller-manager", "kube-scheduler", "snapshot-controller"); err != nil || !st.Services {
			return err
		}
		return l.startServices(st.Binaries)
	})
}

// Build fills the cache with all that Up needs. It does not start the lab.
func (l *Lab) Build(ctx context.Context, progress io.Writer) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if st, err := l.loadState(); err == nil && st.Complete {
		return nil // a lab that is up has all that Up needs
	}
	if err := errors.Join(l.clear(ctx), l.prepareDirs(), l.checkSpace(true)); err != nil {
		return err
	}
	return errors.Join(l.prepare(ctx, &state{ControlPlane: true, Arch: thisArch}, newProgress(progress)), l.clear(context.WithoutCancel(ctx)))
}

// prepare installs and builds what the lab of st boots from, and records it in st. It builds from Debian's archives while it
// compiles Kubernetes: the one needs the network and the disk, the other the processors.
func (l *Lab) prepare(ctx context.Context, st *state, p *progress) error {
	packages := maps.Clone(hostPackages)
	if st.Hardware {
		maps.Copy(packages, hardwarePackages(st.Arch))
	}
	if err := p.step("Debian packages of this machine", func(teller) error { return l.installHostPackages(ctx, packages) }); err != nil {
		return fmt.Errorf("install Debian packages: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root := make(chan error, 1)
	go func() {
		err := l.prepareDebian(ctx, st)
		if err != nil {
			cancel(err) // compiling is useless without a root image
		}
		root <- err
	}()
	var compiled error
	if st.ControlPlane {
		compiled = p.step("compile Kubernetes and its parts", func(tell teller) (err error) {
			st.Binaries, err = l.compile(ctx, tell)
			return err
		})
		if compiled != nil {
			cancel(compiled)
		}
	}
	made := p.step("root image of a Debian node", func(teller) error { return <-root })
	if err := cmp.Or(compiled, made); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	if !st.ControlPlane {
		return nil
	}
	if st.Services {
		if err := p.step("compile CoreDNS and the proxy of Services", func(teller) error { return l.compileServices(ctx, st.Binaries) }); err != nil {
			return err
		}
	}
	return l.prepareKubernetes(ctx, st, p)
}

func (l *Lab) prepareDebian(ctx context.Context, st *state) (err error) {
	if st.RootImage, err = l.rootImage(ctx, st.Arch); err != nil {
		return err
	}
	if st.Hardware {
		_, err = l.hardwareKernel(ctx, st.Arch, st.HardwareSuite)
	}
	if err == nil && st.ControlPlane {
		err = l.bases(ctx)
	}
	return err
}

func (l *Lab) prepareKubernetes(ctx context.Context, st *state, p *progress) error {
	var images []string
	err := p.step("container images", func(tell teller) (err error) {
		images, err = l.images(ctx, st.Binaries, tell)
		return err
	})
	if err != nil {
		return fmt.Errorf("container images: %w", err)
	}
	err = p.step("root image of a Kubernetes node", func(teller) (err error) {
		st.RootImage, err = l.goldenImage(ctx, st.RootImage, st.Binaries, images)
		return err
	})
	if err != nil {
		return fmt.Errorf("root image of a Kubernetes node: %w", err)
	}
	return nil
}

// prepareDirs creates the folders of the lab and empties that of the logs.
func (l *Lab) prepareDirs() error {
	if err := os.RemoveAll(l.Logs()); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(l.dir, "run"), filepath.Join(l.dir, "nodes"), filepath.Join(l.dir, "uml"), l.Logs(), l.systemDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// writeNodeFiles writes the files that every node needs to the share.
func (l *Lab) writeNodeFiles(ctx context.Context) error {
	clock, err := l.clockProgram(ctx)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(clock)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(l.systemDir(), "clock"), program, 0o755),
		os.WriteFile(filepath.Join(l.systemDir(), "init.sh"), []byte(initScript), 0o755),
		os.WriteFile(filepath.Join(l.systemDir(), "sshd_config"), []byte(sshdConfig), 0o600),
		l.writeSSHKeys(),
	)
}

// firstBoot creates m's disks and boots it.
func (l *Lab) firstBoot(ctx context.Context, m machine) error {
	create := l.createDisks
	if m.hardware {
		create = func(m machine) error { return l.createHardwareDisks(ctx, m) }
	}
	if err := create(m); err != nil {
		return err
	}
	return l.boot(ctx, m)
}

// each runs f for all items concurrently, and calls tell after each with the number of finished ones.
func each[T any](items []T, tell teller, f func(T) (string, error)) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(items))
	done := 0
	for i, item := range items {
		wg.Go(func() {
			what, err := f(item)
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
			done++
			tell(done, len(items), what)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
