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

// Suite is Kubernetes' end-to-end test suite, built for this lab.
type Suite struct {
	Binary string   // e2e.test
	Images []string // docker-archives of images that its pods need and no node has, for ImportImage
}

// suiteModule returns the module of Kubernetes' end-to-end tests and of the program that their helper pods run. It requires the same modules as
// that of Kubernetes' commands, though it compiles no guest: Go's cache knows a package by the required version of its module, also of
// a replaced one, and so has most packages.
func suiteModule(v versions) module {
	kubernetes := v["KUBERNETES_VERSION"]
	var guests []guest
	if same := modules(v)[0]; same.version == kubernetes {
		guests = same.guests
	}
	return module{
		name: "e2e", path: "k8s.io/kubernetes", version: kubernetes, staging: v["KUBERNETES_STAGING_VERSION"], ldflags: versionFlags(kubernetes), guests: guests,
		commands: map[string]string{"agnhost": "k8s.io/kubernetes/test/images/agnhost"},
		tests:    map[string]string{"e2e.test": "k8s.io/kubernetes/test/e2e"},
	}
}

// Suite returns Kubernetes' suite. It first compiles what the cache lacks, which takes minutes. Every node already has the suite's
// other images, busybox and pause.
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
	return suite, suite.checkImages(ctx, []string{l.agnhostRef(), l.nginxRef(), l.glibcRef(), l.busyboxRef(), l.pauseImage()})
}

func (l *Lab) agnhostRef() string {
	return "registry.k8s.io/e2e-test-images/agnhost:" + l.versions["AGNHOST_VERSION"]
}

func (l *Lab) nginxRef() string {
	return "registry.k8s.io/e2e-test-images/nginx:" + l.versions["NGINX_VERSION"]
}

func (l *Lab) glibcRef() string {
	return "registry.k8s.io/e2e-test-images/glibc-dns-testing:" + l.versions["GLIBC_DNS_TESTING_VERSION"]
}

// suiteArchives builds the images that only the suite needs.
func (l *Lab) suiteArchives(ctx context.Context, agnhost string) (archives []string, err error) {
	for _, build := range []func() (string, error){
		func() (string, error) { return l.agnhostArchive(ctx, agnhost) },
		func() (string, error) { return l.nginxArchive(ctx) },
		func() (string, error) { return l.glibcArchive(ctx) },
	} {
		archive, err := build()
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// nginxArchive builds an image with the name of nginx and the content of busybox: the specs that use it run only a shell script on
// the volume.
func (l *Lab) nginxArchive(ctx context.Context) (string, error) {
	dir, err := l.artifact(ctx, "image-nginx", hash(l.nginxRef(), l.versions["BUSYBOX_VERSION"], "1"), func(dir string) error {
		spec, err := busybox(ctx, l.nginxRef())
		if err != nil {
			return err
		}
		return image.Write(spec, filepath.Join(dir, "nginx.tar"))
	})
	return filepath.Join(dir, "nginx.tar"), err
}

// glibcArchive builds a Debian image with GNU's tools: the specs of one volume in several pods need its dd and blockdev. It uses
// PostgreSQL's root file system, whose layer every node has.
func (l *Lab) glibcArchive(ctx context.Context) (string, error) {
	base, err := l.postgresBase(ctx)
	if err != nil {
		return "", err
	}
	dir, err := l.artifact(ctx, "image-glibc", hash(l.glibcRef(), base, "2"), func(dir string) error {
		return image.Write(image.Spec{Ref: l.glibcRef(), Base: base, Cmd: []string{"bash"}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}, filepath.Join(dir, "glibc.tar"))
	})
	return filepath.Join(dir, "glibc.tar"), err
}

// agnhostArchive builds the image of the helper pods: agnhost, with the shell and the nsenter that the tests use in it to work on
// the node itself.
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

// checkImages checks that the suite uses the names of the lab's images: the nodes cannot pull others from a registry.
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
