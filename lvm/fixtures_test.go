package lvm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// testNode is a node made of plain files: a sysfs, a procfs and a /dev with disks in it.
type testNode struct{ sys, proc, dev string }

func newTestNode(t testing.TB) testNode {
	t.Helper()
	dir := t.TempDir()
	n := testNode{sys: filepath.Join(dir, "sys"), proc: filepath.Join(dir, "proc"), dev: filepath.Join(dir, "dev")}
	must(t, os.MkdirAll(filepath.Join(n.sys, "class/block"), 0o755))
	must(t, os.MkdirAll(n.dev, 0o755))
	must(t, os.MkdirAll(n.proc, 0o755))
	n.partitions(t)
	return n
}

func (n testNode) disks() *Disks { return &Disks{Sys: n.sys, Proc: n.proc, Dev: n.dev} }

// read reads the node's disks with a reader that remembers nothing.
func (n testNode) read(t testing.TB) State {
	t.Helper()
	state, err := n.disks().Read(context.Background())
	must(t, err)
	return state
}

// probes answers what each disk says.
func (n testNode) probes(t testing.TB) []probe {
	t.Helper()
	found, err := new(scanner).scan(context.Background(), n.sys, n.proc, n.dev)
	must(t, err)
	var probes []probe
	for _, device := range found.list {
		probes = append(probes, n.disks().prober().probe(device, probe{}))
	}
	return probes
}

// partitions writes /proc/partitions as the kernel does: devices without a size are not in it.
func (n testNode) partitions(t testing.TB) {
	t.Helper()
	text := "major minor  #blocks  name\n\n"
	sizes, err := filepath.Glob(filepath.Join(n.sys, "class/block/*/size"))
	must(t, err)
	for _, path := range sizes {
		content, err := os.ReadFile(path)
		must(t, err)
		var sectors int64
		_, err = fmt.Sscan(string(content), &sectors)
		must(t, err)
		if sectors > 0 {
			text += fmt.Sprintf("%4d  %7d %10d %s\n", 7, 1, sectors/2, filepath.Base(filepath.Dir(path)))
		}
	}
	must(t, os.WriteFile(filepath.Join(n.proc, "partitions"), []byte(text), 0o600))
}

// add plugs in a disk: a file of size bytes that begins with content.
func (n testNode) add(t testing.TB, name string, size int64, content []byte) {
	t.Helper()
	n.attribute(t, name, "size", fmt.Sprintln(size/sectorSize))
	must(t, os.MkdirAll(filepath.Join(n.sys, "class/block", name, "device"), 0o755)) // hardware
	n.attribute(t, name, "uevent", "MAJOR=7\nMINOR=1\nDEVNAME="+name+"\nDEVTYPE=disk\n")
	path := filepath.Join(n.dev, name)
	must(t, os.WriteFile(path, bytes.TrimRight(content, "\x00"), 0o600))
	must(t, os.Truncate(path, size))
}

func (n testNode) attribute(t testing.TB, device, name, value string) {
	t.Helper()
	path := filepath.Join(n.sys, "class/block", device, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(value), 0o600))
	if name == "size" {
		n.partitions(t)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scenarios are the captured groups, testdata/capture.sh.
func scenarios(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/groups/*")
	must(t, err)
	if len(dirs) < 34 {
		t.Fatalf("only %d captured groups in testdata/groups", len(dirs))
	}
	return dirs
}

// plug adds a captured scenario's disks to the node.
func (n testNode) plug(t testing.TB, scenario string) {
	t.Helper()
	sizes, err := os.ReadFile(filepath.Join(scenario, "sizes.txt"))
	must(t, err)
	for line := range strings.Lines(string(sizes)) {
		var name string
		var size int64
		_, err := fmt.Sscan(line, &name, &size)
		must(t, err)
		n.add(t, name, size, unzip(t, filepath.Join(scenario, name+".gz")))
		if end := filepath.Join(scenario, name+".end.gz"); exists(end) {
			f, err := os.OpenFile(filepath.Join(n.dev, name), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(unzip(t, end), size-1<<20)
			must(t, errors.Join(err, f.Close()))
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unzipped keeps what unzip read: many tests look at the same disks, and the race detector makes inflating slow.
var unzipped sync.Map

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	if content, ok := unzipped.Load(path); ok {
		return content.([]byte)
	}
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must(t, err)
	content, err := io.ReadAll(z)
	must(t, err)
	unzipped.Store(path, content)
	return content
}

func readReport(t testing.TB, path string) State {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	state, err := parseReport(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return state
}

// captured answers the metadata text on the first disk of a scenario.
func captured(t testing.TB, scenario string) string {
	t.Helper()
	node := newTestNode(t)
	node.plug(t, "testdata/groups/"+scenario)
	for _, p := range node.probes(t) {
		for _, a := range p.areas {
			if a.text != nil {
				return a.text.text
			}
		}
	}
	t.Fatalf("%s holds no metadata", scenario)
	return ""
}
