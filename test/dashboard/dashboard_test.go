//go:build e2e

package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard/simulated"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/report"
)

const web = "../../cmd/kubectl-nodelvm/dashboard/web"

// TestBundle: the committed bundle is what its sources and their lock file give.
func TestBundle(t *testing.T) {
	fresh := t.TempDir()
	build := exec.CommandContext(t.Context(), "node", "build.js", fresh)
	build.Dir = install(t, web)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := os.ReadDir(fresh)
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(fresh, file.Name()))
		must(t, err)
		target := filepath.Join(web, "../assets", file.Name())
		if os.Getenv("UPDATE") != "" {
			must(t, os.WriteFile(target, want, 0o644))
		}
		if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, want) {
			t.Errorf("assets/%s is not what its sources give (%v): UPDATE=1 writes it", file.Name(), err)
		}
	}
}

// install copies a folder, and installs exactly what its lock file names; no package runs a script. In a copy, because other tests
// read all pages of this repository, and packages have pages too.
func install(t *testing.T, folder string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	files := os.DirFS(folder)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "node_modules":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(copied, path), 0o700)
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(copied, path), content, 0o600)
	})
	must(t, err)
	command := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
	command.Dir = copied
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in %s: %v: %s", folder, err, out)
	}
	return copied
}

// serve serves a source until the test ends.
func serve(t *testing.T, source *simulated.Source) (url string) {
	t.Helper()
	server, err := dashboard.Listen(t.Context(), 0, dashboard.Hello{Cluster: "simulated", Version: "test"}, dashboard.NewCollector(source, 300*time.Millisecond))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

// line is what the script prints: a change that it wants, a check and its failure, or a figure.
type line struct {
	Change string `json:"change"`
	Check  string `json:"check"`
	Error  string `json:"error"`
	Figure string `json:"figure"`
}

// TestDashboard: the page shows, finds and follows what is on the nodes, with the sizes that it has there; it is accessible, asks no other host, and runs no hostile
// text. With NODELVM_TEST_PICTURES=FOLDER the pictures of the documentation are written there.
func TestDashboard(t *testing.T) {
	folder := install(t, ".")
	few, hostile := simulated.New(24, 20), simulated.New(2, 4)
	hostile.AddHostileNode("node-9999")
	limited := simulated.New(0, 0)
	limited.ChangeObjects(func(o *dashboard.Objects, _ *[]dashboard.Event) {
		o.Limits = []string{"You may not list PersistentVolumes. Only claims of the namespace shop are shown."}
		o.Claims = []dashboard.Claim{{Claim: "shop/data-0", Node: "node-1", Phase: "Bound", Volume: "pvc-1", Size: 1 << 30}}
	})
	pictures := os.Getenv("NODELVM_TEST_PICTURES")
	if pictures == "" {
		pictures = t.TempDir()
	}
	pictures, err := filepath.Abs(pictures)
	must(t, err)
	settings, err := json.Marshal(map[string]any{"few": serve(t, few), "many": serve(t, simulated.New(1000, 20)), "hostile": serve(t, hostile),
		"limited": serve(t, limited), "faulty": serve(t, faulty()), "hostileText": simulated.Hostile, "pictures": pictures})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	script := exec.CommandContext(ctx, "node", "browser.js", string(settings))
	script.Dir = folder
	var stderr bytes.Buffer
	script.Stderr = &stderr
	out, err := script.StdoutPipe()
	must(t, err)
	must(t, script.Start())
	checks := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			continue
		}
		switch {
		case l.Change != "":
			change(t, few, l.Change)
		case l.Figure != "":
			t.Log(l.Figure)
		default:
			checks++
			if l.Error != "" {
				t.Errorf("%s: %s", l.Check, l.Error)
			}
		}
	}
	if err := script.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if checks < 20 {
		t.Errorf("the browser made %d checks", checks)
	}
}

// faulty is a cluster of three nodes: volumes are wiped, a disk has failed, and a thin pool is nearly full.
func faulty() *simulated.Source {
	source := simulated.New(3, 20)
	source.Fail("node-0002", 1)
	source.FillPool("node-0003")
	return source
}

// change changes the cluster while a page is open.
func change(t *testing.T, source *simulated.Source, what string) {
	t.Helper()
	switch what {
	case "grow":
		source.Change("node-0001", func(page *report.Node) { page.Volumes[0].Size = 77 * (1 << 30) })
	case "degrade":
		source.Change("node-0001", func(page *report.Node) {
			page.Conditions = append(page.Conditions, report.Condition{Type: "VolumeDegraded", Group: "vg-data", Volume: page.Volumes[0].ID, Text: "RAID volume has lost a leg"})
		})
	case "add":
		source.Change("node-0001", func(page *report.Node) {
			page.Volumes = append(page.Volumes, report.Volume{ID: string(page.Groups[0].UUID) + "/pvc-new", Group: "vg-data", LV: "pvc-new", Name: "pvc-new", Claim: "shop/added-live",
				Cluster: page.Cluster, State: "ready", Layout: "linear", Size: 1 << 30})
		})
	case "silence":
		source.Silence("node-0002", errors.New("the driver (pod nodelvm-node-0002) has not answered within 10s"))
	default:
		t.Error(fmt.Errorf("unknown change %q", what))
	}
}

var must = check.Must
