package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

//go:embed files/init.sh
var initScript string

//go:embed files/sshd_config
var sshdConfig string

// raise brings the lab up from nothing.
func (l *Lab) raise(ctx context.Context, opt UpOptions, p *progress) error {
	if err := l.prepareDirs(); err != nil {
		return err
	}
	st := state{Nodes: opt.Nodes, ControlPlane: opt.ControlPlane}
	root, err := l.prepare(ctx, st.role(), p)
	if err != nil {
		return err
	}
	st.RootImage = root
	if err := l.saveState(st); err != nil {
		return err
	}
	nodes := workers(opt.Nodes)
	err = p.step("network namespace", func(func(int, int, string)) error {
		return errors.Join(l.writeNodeFiles(), l.createNamespace(ctx, nodes))
	})
	if err != nil {
		return err
	}
	err = p.step("boot nodes", func(tell func(int, int, string)) error {
		return each(nodes, tell, func(n node) (string, error) {
			return n.name(), l.firstBoot(ctx, l.machine(n, st.role(), root))
		})
	})
	if err != nil {
		return err
	}
	st.Complete = true
	return l.saveState(st)
}

// prepare installs and builds what the nodes of this role boot from, and
// answers the root image.
func (l *Lab) prepare(ctx context.Context, r role, p *progress) (root string, err error) {
	if err := p.step("Debian packages on this machine", func(func(int, int, string)) error {
		return l.installHostPackages(ctx)
	}); err != nil {
		return "", err
	}
	err = p.step("root image of the nodes", func(func(int, int, string)) error {
		root, err = l.rootImage(ctx)
		return err
	})
	return root, err
}

// prepareDirs makes the folders of the lab and empties the logs.
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

// writeNodeFiles puts what every node needs on the share.
func (l *Lab) writeNodeFiles() error {
	return errors.Join(
		os.WriteFile(filepath.Join(l.systemDir(), "init.sh"), []byte(initScript), 0o755),
		os.WriteFile(filepath.Join(l.systemDir(), "sshd_config"), []byte(sshdConfig), 0o600),
		l.writeSSHKeys(),
	)
}

// firstBoot makes m's disks and boots it.
func (l *Lab) firstBoot(ctx context.Context, m machine) error {
	if err := l.createDisks(m); err != nil {
		return err
	}
	return l.boot(ctx, m)
}

// each runs f for all items at the same time and tells how many are done.
func each[T any](items []T, tell func(done, total int, what string), f func(T) (string, error)) error {
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
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w", err)
	}
	return nil
}
