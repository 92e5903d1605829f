package docrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/test/lab"
)

// Page is a page whose commands run in a lab.
type Page struct {
	Path  string   // below docs
	Names []string // pairs: a name of the page's disk or node, the lab's name for it
	With  string   // a value of the chart that the driver has, or a state of the cluster: only the blocks that need it run
}

func (p Page) names() *strings.Replacer { return strings.NewReplacer(p.Names...) }

// Short are the pages of every test run, in the order of a reader: each uses what the one before has left.
func Short() []Page {
	return []Page{
		{Path: "tutorial.md"},
		{Path: "howto/expand.md"},
		{Path: "howto/snapshots.md"},
	}
}

// Long are the pages of the long tests. The last one removes the driver.
func Long() []Page {
	disks := []string{"/dev/nvme0n1", "/dev/ubdb", "/dev/nvme1n1", "/dev/ubdc", "/dev/nvme2n1", "/dev/ubdc"}
	return []Page{
		{Path: "howto/pending-claim.md"},
		{Path: "howto/thin.md"},
		{Path: "howto/raid.md"},
		{Path: "howto/placement.md"},
		{Path: "howto/watch.md"},
		{Path: "howto/runbooks.md"},
		{Path: "howto/drain-node.md"},
		{Path: "howto/move.md"},
		{Path: "howto/lost-nodes.md"},
		{Path: "howto/adopt.md"},
		{Path: "howto/migrate.md"},
		{Path: "howto/replace-disk.md"},
		{Path: "howto/volume-groups.md", Names: disks},
		{Path: "howto/add-disks.md", Names: disks},
		{Path: "howto/autoscaling.md"},
		{Path: "howto/encryption.md"},
		{Path: "howto/io-limits.md"},
		{Path: "howto/dashboard.md"},
		{Path: "howto/distributions.md"},
		{Path: "howto/gitops.md"},
		{Path: "howto/databases/postgresql.md"},
		{Path: "howto/databases/replicated.md"},
		{Path: "howto/air-gapped.md"},
		{Path: "howto/install.md", Names: []string{"registry.example/nodelvm", "ghcr.io/nodelvm/nodelvm"}},
	}
}

// Backup is the page that TestVelero follows: its commands need Velero and an S3 server, whose address and keys the names give.
func Backup(names ...string) Page { return Page{Path: "howto/backup.md", Names: names} }

// BackupOfLostNode has the commands of the same page for the namespace of a node that is lost.
func BackupOfLostNode(names ...string) Page {
	return Page{Path: Backup().Path, Names: names, With: "a lost node"}
}

// Follow runs the commands of a page of the checkout in its own shell, in a temporary folder. The lab must be up.
func Follow(ctx context.Context, l *lab.Lab, checkout string, page Page, report func(format string, args ...any)) (err error) {
	text, err := os.ReadFile(filepath.Join(checkout, "docs", page.Path))
	if err != nil {
		return err
	}
	blocks, err := Parse(string(text))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "docrun")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := session{lab: l, report: report, names: page.names(), with: page.With}
	if err := s.start(ctx, checkout, dir); err != nil {
		return err
	}
	defer s.close()
	for _, block := range blocks {
		if err := s.run(ctx, block); err != nil {
			return err
		}
	}
	return nil
}

// WithGroupSnapshots is the page of which a driver with group snapshots runs the blocks that need them.
func WithGroupSnapshots() Page {
	return Page{Path: "howto/snapshots.md", With: "groupSnapshots.enabled"}
}

// Find finds the page with that path.
func Find(path string) (Page, error) {
	for _, page := range append(slices.Concat(Short(), Long()), Backup()) {
		if page.Path == path {
			return page, nil
		}
	}
	return Page{}, fmt.Errorf("no page %s: see Short and Long in test/docrun/pages.go", path)
}
