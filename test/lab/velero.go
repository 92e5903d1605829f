package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/nodelvm/nodelvm/deploy/image"
)

const (
	veleroPath     = "github.com/vmware-tanzu/velero"
	awsPluginPath  = "github.com/vmware-tanzu/velero-plugin-for-aws"
	versitygwPath  = "github.com/versity/versitygw"
	veleroRegistry = "docker.io/velero/"
)

// Velero is Velero's command and the docker-archives of the images that its installation names, for ImportImage.
type Velero struct {
	Command string
	Images  []string
}

// veleroModule returns the module of Velero and its plugin for S3.
func veleroModule(v versions) module {
	version := v["VELERO_VERSION"]
	return module{
		name: "velero", path: veleroPath, version: version, ldflags: "-X " + veleroPath + "/pkg/buildinfo.Version=" + version,
		guests: []guest{{awsPluginPath, v["VELERO_PLUGIN_VERSION"]}},
		replace: []string{
			// as in its go.mod
			"github.com/kopia/kopia => github.com/project-velero/kopia v0.0.0-20251230033609-d946b1e75197",
			// no Go module proxy serves v0.33.12
			"k8s.io/cli-runtime => k8s.io/cli-runtime v0.33.13",
		},
		commands: map[string]string{
			"velero":                veleroPath + "/cmd/velero",
			"velero-plugin-for-aws": awsPluginPath + "/velero-plugin-for-aws",
			"cp-plugin":             awsPluginPath + "/hack/cp-plugin",
		},
	}
}

// versitygwModule returns the module of an S3 server that keeps objects in files.
func versitygwModule(v versions) module {
	return module{
		name: "versitygw", path: versitygwPath, version: v["VERSITYGW_VERSION"],
		commands: map[string]string{"versitygw": versitygwPath + "/cmd/versitygw"},
	}
}

// Velero returns Velero, whose command Shell then finds. It first compiles what the cache lacks, which takes a quarter of an hour.
func (l *Lab) Velero(ctx context.Context) (Velero, error) {
	if err := errors.Join(l.versions.need("VELERO_VERSION", "VELERO_PLUGIN_VERSION"), os.MkdirAll(l.Logs(), 0o755)); err != nil {
		return Velero{}, err
	}
	m := veleroModule(l.versions)
	bin, err := l.compileModule(ctx, m, func(int) {})
	if err != nil {
		return Velero{}, fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
	}
	velero := Velero{Command: filepath.Join(bin, "velero")}
	pluginRef := veleroRegistry + "velero-plugin-for-aws:" + l.versions["VELERO_PLUGIN_VERSION"]
	dir, err := l.artifact(ctx, "image-velero", hash(bin, pluginRef, "1"), func(dir string) error {
		plugin := "/plugins/velero-plugin-for-aws"
		return errors.Join(
			image.Write(image.Spec{
				Ref: veleroRegistry + "velero:" + m.version, Files: map[string]string{"/velero": velero.Command},
				Dirs: []string{"/tmp", "/root"}, Env: []string{"HOME=/root", "PATH=/"},
			}, filepath.Join(dir, "velero.tar")),
			image.Write(image.Spec{
				Ref: pluginRef, Files: map[string]string{plugin: filepath.Join(bin, "velero-plugin-for-aws"), "/bin/cp-plugin": filepath.Join(bin, "cp-plugin")},
				Entrypoint: []string{"/bin/cp-plugin", plugin, "/target/velero-plugin-for-aws"},
			}, filepath.Join(dir, "plugin.tar")),
		)
	})
	if err != nil {
		return Velero{}, err
	}
	velero.Images = []string{filepath.Join(dir, "velero.tar"), filepath.Join(dir, "plugin.tar")}
	tools, err := l.tools(ctx)
	if err != nil {
		return Velero{}, err
	}
	if err := os.Symlink(velero.Command, filepath.Join(tools, "velero")); err != nil && !errors.Is(err, fs.ErrExist) {
		return Velero{}, err
	}
	return velero, nil
}

// S3 is an S3 server in the lab's network, with a bucket.
type S3 struct {
	URL, Region, Bucket, Key, Secret string
	Folder                           string // of this machine, with the bucket's objects
}

// StartS3 starts an S3 server on the bridge, if none runs. It ends with the lab, which removes the objects. It first compiles the
// server if the cache lacks it.
func (l *Lab) StartS3(ctx context.Context) (S3, error) {
	const port = 7070
	server := S3{
		URL: fmt.Sprintf("http://%s:%d", bridgeIP, port), Region: "us-east-1", Bucket: "velero", Key: "lab", Secret: "lab-secret",
		Folder: filepath.Join(l.dir, "s3", "velero"),
	}
	if err := errors.Join(l.versions.need("VERSITYGW_VERSION"), os.MkdirAll(l.Logs(), 0o755)); err != nil {
		return S3{}, err
	}
	m := versitygwModule(l.versions)
	bin, err := l.compileModule(ctx, m, func(int) {})
	if err != nil {
		return S3{}, fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
	}
	if l.alive("s3") {
		return server, nil
	}
	if err := os.MkdirAll(server.Folder, 0o755); err != nil {
		return S3{}, err
	}
	address := net.JoinHostPort(bridgeIP, fmt.Sprint(port))
	err = l.startDaemon(daemon{
		name: "s3", core: -1,
		argv: []string{filepath.Join(bin, "versitygw"), "--port", address, "--region", server.Region, "--quiet", "posix", filepath.Dir(server.Folder)},
		env:  []string{"ROOT_ACCESS_KEY=" + server.Key, "ROOT_SECRET_KEY=" + server.Secret},
	})
	if err != nil {
		return S3{}, err
	}
	return server, l.poll(ctx, bootTimeout, "s3", []string{"s3"}, func(ctx context.Context) error {
		conn, err := l.dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
