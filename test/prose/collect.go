package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folder holds the copies, below the root of the checkout. .vale.ini names it.
const Folder = "dist/prose"

// SourceFolders hold the code whose messages users read; the tests' are for developers.
var SourceFolders = []string{"cmd", "controller", "internal", "kube", "lvm", "move", "node", "pending", "report"}

// commented are the files with comments that users read.
var commented = []string{".yaml", ".yml", ".tpl", ".txt", "values.schema.json"}

// Collect writes the copies of all sources below root.
func Collect(root string) error {
	if err := os.RemoveAll(filepath.Join(root, Folder)); err != nil {
		return err
	}
	for _, folder := range SourceFolders {
		err := each(root, folder, func(path string, source []byte) error {
			if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "lvmtest") {
				return nil
			}
			messages, err := Messages(source)
			if err != nil {
				return err
			}
			return write(root, path, messages, "- ")
		})
		if err != nil {
			return err
		}
	}
	return each(root, "deploy", func(path string, source []byte) error {
		// deploy/nodelvm.yaml and deploy/controller.yaml are rendered from the chart.
		if filepath.Dir(path) == "deploy" || !slices.ContainsFunc(commented, func(end string) bool { return strings.HasSuffix(path, end) }) {
			return nil
		}
		if strings.HasSuffix(path, ".txt") {
			return write(root, path, Notes(source), "")
		}
		return write(root, path, Comments(source), "")
	})
}

// each calls do with the files of a folder but those of test data, by their paths below root.
func each(root, folder string, do func(path string, source []byte) error) error {
	return filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return do(path, source)
	})
}

// write puts the texts on the lines that they have in the source.
func write(root, path string, texts map[int][]string, bullet string) error {
	if len(texts) == 0 {
		return nil
	}
	last := 0
	for line := range texts {
		last = max(last, line)
	}
	lines := make([]string, last+1)
	for line, parts := range texts {
		lines[line-1] = bullet + strings.Join(parts, ". ")
	}
	target := filepath.Join(root, Folder, path+".md")
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, []byte(strings.Join(lines, "\n")), 0o644)
}
