package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestPolicyAdmitsNames: the admission policy refuses every annotation, label and volume attribute that it does not list, so it
// must list those that a node writes, and lists no others of this driver.
func TestPolicyAdmitsNames(t *testing.T) {
	_, policy, found := strings.Cut(read(t, "../deploy/nodelvm.yaml"), "\nkind: ValidatingAdmissionPolicy\nmetadata:\n  name: nodelvm-node-restriction\n")
	policy, _, _ = strings.Cut(policy, "\nkind: ")
	if !found {
		t.Fatal("deploy/nodelvm.yaml has no policy nodelvm-node-restriction")
	}
	written := []string{
		api.TopologyKey, api.AnnotationSelectedNode, api.AnnotationNoNodeExpansion, api.LabelManagedBy,
		api.AnnotationRetriedAt, api.AnnotationLostSince, api.AnnotationVolumeGroupLostSince,
		api.AttributeUUID, api.AttributeVolumeGroup, api.AttributeSource, api.AttributeMkfsOptions, api.AttributeEncryption,
	}
	for _, name := range written {
		if !strings.Contains(policy, "'"+name+"'") {
			t.Errorf("the policy nodelvm-node-restriction in deploy/nodelvm.yaml does not admit %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`'([a-z.]*nodelvm\.io/[a-z-]+)'`).FindAllStringSubmatch(policy, -1) {
		if !slices.Contains(written, name[1]) {
			t.Errorf("the policy admits %s, which no node writes", name[1])
		}
	}
}

// TestNamesOfTheDriver: each name below nodelvm.io in the chart and the docs is declared here, or is one that only the chart and
// admins use.
func TestNamesOfTheDriver(t *testing.T) {
	declared := constants(t)
	declared = append(declared,
		"nodelvm.io/volume-groups-checksum", // of the DaemonSet's pods, by the chart
		"nodelvm.io/node-groups-checksum",   // of nodelvm-controller's pod, by the chart
		"nodelvm.io/storage",                // of nodes, in an example of a node selector
		"nodelvm.io/csi.sock",               // in the path of the driver's socket
	)
	named := 0
	for _, root := range []string{"../deploy/chart/nodelvm/templates", "../deploy/examples", "../docs"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".md"}, filepath.Ext(path)) {
				return err
			}
			for _, name := range regexp.MustCompile(`(?:topology\.)?nodelvm\.io/[a-z][a-z.-]*[a-z]`).FindAllString(read(t, path), -1) {
				named++
				if !slices.Contains(declared, name) {
					t.Errorf("%s: package api declares no %s", path, name)
				}
			}
			return nil
		})
		check.Must(t, err)
	}
	if named < 20 {
		t.Errorf("only %d names were found", named)
	}
}

// constants are the values of names.go that are written out.
func constants(t *testing.T) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, parser.SkipObjectResolution)
	check.Must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok {
			if value, err := strconv.Unquote(lit.Value); err == nil {
				values = append(values, value)
			}
		}
		return true
	})
	return values
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	check.Must(t, err)
	return string(text)
}
