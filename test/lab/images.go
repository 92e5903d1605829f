package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/deploy/image"
)

//go:embed files/postgres-entrypoint.sh
var postgresEntrypoint string

// busyboxBinary is the static busybox of the busybox image.
const busyboxBinary = "/bin/busybox"

func (l *Lab) pauseImage() string { return "registry.k8s.io/pause:" + l.versions["PAUSE_VERSION"] }

func (l *Lab) busyboxRef() string {
	return "registry.k8s.io/e2e-test-images/busybox:" + l.versions["BUSYBOX_VERSION"]
}

// archive is a container image that every node has when it boots.
type archive struct {
	name  string // of its folder in the cache
	key   string // digest of its inputs
	build func(ctx context.Context, dir, out string) error
}

// archives returns the lab's images under the names that manifests use.
func (l *Lab) archives(bin binaries) []archive {
	v := l.versions
	return []archive{
		{"pause", hash(l.pauseImage(), "1"), func(ctx context.Context, dir, out string) error {
			return l.programArchive(ctx, "pause", l.pauseImage(), dir, out)
		}},
		{"busybox", hash(v["BUSYBOX_VERSION"], "1"), func(ctx context.Context, _, out string) error {
			spec, err := busybox(ctx, l.busyboxRef())
			if err != nil {
				return err
			}
			spec.Cmd = []string{"sh"}
			return image.Write(spec, out)
		}},
		l.sidecar("csi-provisioner", v["CSI_PROVISIONER_VERSION"], bin),
		l.sidecar("csi-snapshotter", v["CSI_SNAPSHOTTER_VERSION"], bin),
		// The driver's root file system: once a node has this layer, an import of the driver's image adds only the binary.
		{"nodelvm-base", hash(v["DEBIAN_IMAGE_SUITE"], "1"), func(ctx context.Context, _, out string) error {
			base, err := l.DriverBase(ctx, runtime.GOARCH)
			if err != nil {
				return err
			}
			return image.Write(image.Spec{Ref: "nodelvm.test/base:" + v["DEBIAN_IMAGE_SUITE"], Base: base}, out)
		}},
		{"postgres", hash(v["POSTGRES_VERSION"], v["DEBIAN_IMAGE_SUITE"], postgresEntrypoint, postgresUsers, "2"), func(ctx context.Context, dir, out string) error {
			return l.postgresArchive(ctx, dir, out)
		}},
	}
}

// sidecar returns one of Kubernetes' CSI sidecars, under the name that manifests use.
func (l *Lab) sidecar(name, version string, bin binaries) archive {
	return archive{name, hash(bin[name], "1"), func(_ context.Context, _, out string) error {
		return image.Write(image.Spec{
			Ref:        "registry.k8s.io/sig-storage/" + name + ":" + version,
			Files:      map[string]string{"/" + name: bin[name]},
			Entrypoint: []string{"/" + name},
		}, out)
	}}
}

// images returns the docker-archive files of all archives, and builds those that the cache lacks.
func (l *Lab) images(ctx context.Context, bin binaries, tell teller) ([]string, error) {
	all := l.archives(bin)
	var files []string
	for i, a := range all {
		tell(i, len(all), a.name)
		dir, err := l.artifact(ctx, "image-"+a.name, a.key, func(dir string) error {
			return a.build(ctx, dir, filepath.Join(dir, a.name+".tar"))
		})
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", a.name, err)
		}
		files = append(files, filepath.Join(dir, a.name+".tar"))
	}
	tell(len(all), len(all), "")
	return files, nil
}

// programArchive writes an image with a program of test/cmd and nothing else.
func (l *Lab) programArchive(ctx context.Context, program, ref, dir, out string) error {
	binary := filepath.Join(dir, program)
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false"}
	err := l.toolIn(ctx, "compile-"+program, filepath.Join(l.checkout, "test"), env, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/"+program)
	if err != nil {
		return err
	}
	return image.Write(image.Spec{
		Ref: ref, Files: map[string]string{"/" + program: binary}, Entrypoint: []string{"/" + program},
	}, out)
}

// ImportProgram compiles a program of test/cmd, and imports an image with it into these nodes.
func (l *Lab) ImportProgram(ctx context.Context, program, ref string, nodes ...string) (err error) {
	dir, err := os.MkdirTemp(l.dir, program+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	archive := filepath.Join(dir, program+".tar")
	if err := l.programArchive(ctx, program, ref, dir, archive); err != nil {
		return err
	}
	return l.ImportImage(ctx, archive, nodes...)
}

// busybox describes an image with Debian's static busybox and a link for each of its commands.
func busybox(ctx context.Context, ref string) (image.Spec, error) {
	list, err := exec.CommandContext(ctx, busyboxBinary, "--list").Output()
	if err != nil {
		return image.Spec{}, fmt.Errorf("%s --list: %w", busyboxBinary, err)
	}
	links := map[string]string{}
	for _, command := range strings.Fields(string(list)) {
		if command != "busybox" {
			links["/bin/"+command] = "busybox"
		}
	}
	return image.Spec{
		Ref: ref, Files: map[string]string{"/bin/busybox": busyboxBinary}, Links: links, Dirs: []string{"/tmp", "/etc", "/root"},
		Env: []string{"PATH=/bin"},
	}, nil
}

// postgresUsers is the image's /etc/passwd. Pods' security contexts commonly use uid 999.
const postgresUsers = "root:x:0:0:root:/root:/bin/sh\n" +
	"postgres:x:999:999:PostgreSQL:/var/lib/postgresql:/bin/sh\n" +
	"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"

// postgresArchive builds an image with Debian's PostgreSQL, without the JIT compiler, which is half of its size.
func (l *Lab) postgresArchive(ctx context.Context, dir, out string) error {
	version := l.versions["POSTGRES_VERSION"]
	base, err := l.postgresBase(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{"/entrypoint.sh": postgresEntrypoint, "/etc/passwd": postgresUsers}
	for path, content := range files {
		files[path] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(files[path], []byte(content), 0o755); err != nil {
			return err
		}
	}
	if files["/database.tar"], err = l.emptyDatabase(ctx, base, dir); err != nil {
		return err
	}
	return image.Write(image.Spec{
		Ref: "docker.io/library/postgres:" + version, Base: base, Files: files,
		Entrypoint: []string{"/entrypoint.sh"}, Cmd: []string{"postgres"},
		Env: []string{
			"PATH=/usr/lib/postgresql/" + version + "/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
			"PGDATA=/var/lib/postgresql/data", "PGHOST=/tmp", "PGUSER=postgres",
		},
	}, out)
}

// emptyDatabase returns a tar file of a new database. initdb takes a second on this machine, but a minute in a node, where starting
// processes is slow.
func (l *Lab) emptyDatabase(ctx context.Context, base, dir string) (string, error) {
	const log = "image-postgres"
	tree, out := filepath.Join(dir, "tree"), filepath.Join(dir, "database.tar")
	for _, d := range []string{tree, filepath.Join(tree, "dev"), filepath.Join(tree, "dev/shm")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	if err := l.tool(ctx, log, "tar", "-xf", base, "-C", tree); err != nil {
		return "", err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(tree, "etc/passwd"), []byte(postgresUsers), 0o644),
		os.WriteFile(filepath.Join(tree, "dev/null"), nil, 0o666),
		os.Chmod(filepath.Join(tree, "dev/null"), 0o666),
		os.Chmod(filepath.Join(tree, "dev/shm"), 0o777),
	)
	if err != nil {
		return "", err
	}
	err = l.tool(ctx, log, "chroot", "--userspec=999:999", tree,
		"/usr/lib/postgresql/"+l.versions["POSTGRES_VERSION"]+"/bin/initdb", "--no-sync",
		"--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata=/tmp/database")
	if err != nil {
		return "", err
	}
	hba, err := os.OpenFile(filepath.Join(tree, "tmp/database/pg_hba.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return "", err
	}
	if _, err := hba.WriteString("host all all all trust\n"); err != nil {
		return "", errors.Join(err, hba.Close())
	}
	if err := hba.Close(); err != nil {
		return "", err
	}
	if err := l.tool(ctx, log, "tar", "-cf", out, "-C", filepath.Join(tree, "tmp/database"), "."); err != nil {
		return "", err
	}
	return out, os.RemoveAll(tree)
}

// bases builds the root file systems of the images.
func (l *Lab) bases(ctx context.Context) error {
	if _, err := l.DriverBase(ctx, runtime.GOARCH); err != nil {
		return err
	}
	_, err := l.postgresBase(ctx)
	return err
}

// DriverBase returns the tar file with the root file system of the driver's image for a processor, named as GOARCH.
func (l *Lab) DriverBase(ctx context.Context, arch string) (string, error) {
	return image.DriverBase(ctx, l.versions["DEBIAN_IMAGE_SUITE"], arch, l.cache, nil, l.buildMark())
}

func (l *Lab) postgresBase(ctx context.Context) (string, error) {
	return l.debianBase(ctx, "postgresql-"+l.versions["POSTGRES_VERSION"], "*/libLLVM*", "*/libz3*", "*/bitcode/*", "*/llvmjit*")
}

// FioArchive returns the docker-archive of an image with Debian's fio, under the name docker.io/library/fio:lab.
func (l *Lab) FioArchive(ctx context.Context) (string, error) {
	base, err := l.debianBase(ctx, "fio")
	if err != nil {
		return "", err
	}
	dir, err := l.artifact(ctx, "image-fio", hash(base, "1"), func(dir string) error {
		return image.Write(image.Spec{Ref: "docker.io/library/fio:lab", Base: base, Env: []string{"PATH=/usr/bin:/bin"}}, filepath.Join(dir, "fio.tar"))
	})
	return filepath.Join(dir, "fio.tar"), err
}

// debianBase returns a tar file with Debian's essential packages and pkg, without the files that match the patterns.
func (l *Lab) debianBase(ctx context.Context, pkg string, exclude ...string) (string, error) {
	suite, name := l.versions["DEBIAN_IMAGE_SUITE"], "base-"+pkg
	dir, err := l.artifact(ctx, name, hash(append(exclude, suite, pkg)...), func(dir string) error {
		log, err := os.Create(l.logFile(name))
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		err = image.Debian(ctx, suite, []string{pkg}, filepath.Join(dir, "base.tar"),
			image.Options{Log: log, Exclude: exclude, Env: []string{l.buildMark(), "TMPDIR=" + dir}})
		if err != nil {
			return l.logged(name, err)
		}
		return nil
	})
	return filepath.Join(dir, "base.tar"), err
}

// ImportImage imports the docker-archive at the path tar into containerd of these nodes, or without names of every running node, under the archive's
// image name. Pods can use it at once.
func (l *Lab) ImportImage(ctx context.Context, tar string, names ...string) error {
	tar, err := filepath.Abs(tar)
	if err != nil {
		return err
	}
	if strings.ContainsAny(tar, ", \n") {
		return fmt.Errorf("image %q: a node cannot mount a folder with a comma or space in its name", tar)
	}
	st, err := l.loadState()
	if err != nil {
		return err
	}
	mount, dir := hostfsScript, filepath.Dir(tar)
	if st.Hardware {
		mount, dir = "at=$1\n", "/mnt/lab"
		shared, err := l.share(tar)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(shared) }()
		tar = shared
	}
	return each(workers(st.Nodes), func(int, int, string) {}, func(n node) (string, error) {
		if len(names) == 0 && !l.alive(n.name()) || len(names) > 0 && !slices.Contains(names, n.name()) {
			return n.name(), nil
		}
		return n.name(), l.run(ctx, n.name(), "sh", "-ec", mount+importScript, "import", dir, filepath.Base(tar))
	})
}

// share copies a file to the share, under a new name. Nodes on emulated hardware see no other folder.
func (l *Lab) share(file string) (copied string, err error) {
	from, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(l.Share(), "*-"+filepath.Base(file))
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		err = errors.Join(err, os.Remove(to.Name()))
	}
	return to.Name(), err
}

// hostfsScript mounts the host's folder $1 at $at until the end of the script.
const hostfsScript = `at=$(mktemp -d /run/import.XXXXXX)
LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs none "$at" -o "$1"
trap 'umount "$at" && rmdir "$at"' EXIT
`

// importScript imports the file $2 of the folder $at.
const importScript = `# --local: else the archive goes to containerd in small messages, five times slower here
ctr -n k8s.io images import --local "$at/$2"`
