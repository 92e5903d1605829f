package accepted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// otherDrivers returns the kubelet's plugins besides this driver that have, or had, a directory or a socket below the kubelet's root
// directory; "": there is no kubelet. A storage driver has one before its first volume reaches the node. An error: it is unknown which
// there are.
func otherDrivers(kubelet, driver string) ([]string, error) {
	if kubelet == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(kubelet, "pods")); err != nil {
		return nil, err // another directory than the kubelet's
	}
	var others []string
	for _, place := range []struct{ dir, ours string }{
		{"plugins", "|kubernetes.io|" + driver + "|"},
		{"plugins/kubernetes.io", "|csi|"},
		{"plugins_registry", "|" + driver + "-reg.sock|"},
	} {
		entries, err := os.ReadDir(filepath.Join(kubelet, place.dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if !strings.Contains(place.ours, "|"+e.Name()+"|") {
				others = append(others, clean(strings.TrimSuffix(e.Name(), "-reg.sock")))
			}
		}
	}
	return others, nil
}
