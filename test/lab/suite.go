package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/deploy/image"
)

// Suite is upstream's end-to-end test suite, made ready for this lab.
type Suite struct {
	Binary string   // e2e.test
	Images []string // docker-archives of what its pods want and no node has: see ImportImage
}

// suiteModule compiles Kubernetes' end-to-end tests, and the program that their helper pods run.
func suiteModule(v versions) module {
	kubernetes := v["KUBERNETES_VERSION"]
	return module{
		name: "e2e", path: "k8s.io/kubernetes", version: kubernetes, ldflags: versionFlags(kubernetes),
		commands: map[string]string{"agnhost": "k8s.io/kubernetes/test/images/agnhost"},
		tests:    map[string]string{"e2e.test": "k8s.io/kubernetes/test/e2e"},
	}
}

// Suite answers upstream's suite; what the cache lacks is compiled first, which takes minutes. Busybox and pause, its
// other images, are a part of every node.
func (l *Lab) Suite(ctx context.Context, progress io.Writer) (Suite, error) {
	if err := l.versions.need("AGNHOST_VERSION", "NGINX_VERSION", "GLIBC_DNS_TESTING_VERSION"); err != nil {
		return Suite{}, err
	}
	if err := os.MkdirAll(l.Logs(), 0o755); err != nil {
		return Suite{}, err
	}
	var suite Suite
	m := suiteModule(l.versions)
	err := newProgress(progress).step("compile Kubernetes' storage suite", func(tell teller) error {
		bin, err := l.compileModule(ctx, m, func(n int) { tell(n, len(m.commands)+len(m.tests), m.version) })
		if err != nil {
			return err
		}
		suite.Binary = filepath.Join(bin, "e2e.test")
		suite.Images, err = l.suiteArchives(ctx, filepath.Join(bin, "agnhost"))
		return err
	})
	if err != nil {
		return Suite{}, fmt.Errorf("the storage suite: %w", err)
	}
	return suite, suite.checkImages(ctx, append(l.shellRefs(), l.agnhostRef(), l.busyboxRef(), l.pauseImage()))
}

func (l *Lab) agnhostRef() string {
	return "registry.k8s.io/e2e-test-images/agnhost:" + l.versions["AGNHOST_VERSION"]
}

// shellRefs are images of which the suite's pods run nothing but the shell and its usual commands: the lab's busybox bears
// their names.
func (l *Lab) shellRefs() []string {
	return []string{
		"registry.k8s.io/e2e-test-images/nginx:" + l.versions["NGINX_VERSION"],
		"registry.k8s.io/e2e-test-images/glibc-dns-testing:" + l.versions["GLIBC_DNS_TESTING_VERSION"],
	}
}

// suiteArchives are the images that only the suite needs.
func (l *Lab) suiteArchives(ctx context.Context, agnhost string) ([]string, error) {
	archive, err := l.agnhostArchive(ctx, agnhost)
	if err != nil {
		return nil, err
	}
	archives := []string{archive}
	for i, ref := range l.shellRefs() {
		file := fmt.Sprintf("shell%d.tar", i)
		dir, err := l.artifact(ctx, fmt.Sprint("image-shell", i), hash(ref, l.versions["BUSYBOX_VERSION"]), func(dir string) error {
			spec, err := busybox(ctx, ref)
			if err != nil {
				return err
			}
			spec.Cmd = []string{"sh"}
			return image.Write(spec, filepath.Join(dir, file))
		})
		if err != nil {
			return nil, err
		}
		archives = append(archives, filepath.Join(dir, file))
	}
	return archives, nil
}

// agnhostArchive is the image of the helper pods: its one program, with the shell and the nsenter that the tests call
// in it to work on the node itself.
func (l *Lab) agnhostArchive(ctx context.Context, binary string) (string, error) {
	dir, err := l.artifact(ctx, "image-agnhost", hash(binary, l.agnhostRef(), "1"), func(dir string) error {
		spec, err := busybox(ctx, l.agnhostRef())
		if err != nil {
			return err
		}
		spec.Files["/agnhost"] = binary
		spec.Entrypoint, spec.Cmd = []string{"/agnhost"}, []string{"pause"}
		return image.Write(spec, filepath.Join(dir, "agnhost.tar"))
	})
	return filepath.Join(dir, "agnhost.tar"), err
}

// checkImages holds the lab's images to the names that the suite will ask for: there is no registry to pull another from.
func (s Suite) checkImages(ctx context.Context, have []string) error {
	out, err := exec.CommandContext(ctx, s.Binary, "--list-images").Output()
	if err != nil {
		return fmt.Errorf("%s --list-images: %w", s.Binary, err)
	}
	asked := strings.Fields(string(out))
	for _, ref := range have {
		if !slices.Contains(asked, ref) {
			return fmt.Errorf("the suite does not ask for %s: %s names another version than it does", ref, versionsFile)
		}
	}
	return nil
}
