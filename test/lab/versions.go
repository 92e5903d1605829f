package lab

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// versionsFile, in the root of the checkout, has the versions of all that is built or installed for tests.
const versionsFile = "versions.env"

// versions maps a key of versions.env to its value.
type versions map[string]string

// parseVersions reads KEY=VALUE lines. It ignores empty lines and lines that begin with #; values have no quotes.
func parseVersions(r io.Reader) (versions, error) {
	v := versions{}
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("line %d: want KEY=VALUE, have %q", n, line)
		}
		if _, twice := v[key]; twice {
			return nil, fmt.Errorf("line %d: %s is set twice", n, key)
		}
		v[key] = value
	}
	return v, s.Err()
}

// need returns an error that names all missing keys.
func (v versions) need(keys ...string) error {
	var missing []string
	for _, k := range keys {
		if v[k] == "" {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s lacks %s", versionsFile, strings.Join(missing, ", "))
	}
	return nil
}

// loadVersions finds versions.env in the working directory or the nearest folder above it, and returns its content and the folder:
// the checkout.
func loadVersions() (versions, string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, "", err
	}
	for {
		f, err := os.Open(filepath.Join(dir, versionsFile))
		if err == nil {
			defer func() { _ = f.Close() }()
			v, err := parseVersions(f)
			if err != nil {
				return nil, "", fmt.Errorf("%s: %w", f.Name(), err)
			}
			if v, err = v.withKubernetes(os.Getenv(EnvKubernetes)); err != nil {
				return nil, "", err
			}
			if err := v.setSuites(os.Getenv(EnvSuites)); err != nil {
				return nil, "", err
			}
			return v, dir, v.need("KUBERNETES_VERSION", "KUBERNETES_STAGING_VERSION", "ETCD_VERSION",
				"CONTAINERD_VERSION", "CSI_PROVISIONER_VERSION", "DEBIAN_NODE_SUITE",
				"PAUSE_VERSION", "BUSYBOX_VERSION", "POSTGRES_VERSION")
		}
		if !os.IsNotExist(err) {
			return nil, "", err
		}
		if dir == filepath.Dir(dir) {
			return nil, "", fmt.Errorf("no %s in the working directory or above it: run from inside the checkout", versionsFile)
		}
		dir = filepath.Dir(dir)
	}
}

// EnvSuites is the variable that selects other Debian suites than versions.env: of the nodes' kernel and of the nodes, such as
// "trixie/bookworm". The version matrix sets it.
const EnvSuites = "NODELVM_KERNEL_AND_NODE_SUITE"

var suites = regexp.MustCompile(`^([a-z]+)/([a-z]+)$`)

// setSuites replaces the suites of the kernel and of the nodes; "" changes nothing.
func (v versions) setSuites(names string) error {
	if names == "" {
		return nil
	}
	m := suites.FindStringSubmatch(names)
	if m == nil {
		return fmt.Errorf("%s is %q; set it to two suites of Debian such as trixie/bookworm", EnvSuites, names)
	}
	v["DEBIAN_KERNEL_SUITE"], v["DEBIAN_NODE_SUITE"] = m[1], m[2]
	return nil
}
