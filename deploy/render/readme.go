package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const readmeHeader = `# nodelvm's Helm chart

LVM volumes for Kubernetes pods on the local disks of their node. [Installation](../../../docs/howto/install.md) describes how to use
this chart. "make manifest" writes this page from values.yaml.

| value | default | description |
|---|---|---|
`

// renderReadme lists the chart's values with the comments of values.yaml.
func renderReadme(deploy string) (string, error) {
	text, err := os.ReadFile(filepath.Join(deploy, chartDir, "values.yaml"))
	if err != nil {
		return "", err
	}
	var page yaml.Node
	if err := yaml.Unmarshal(text, &page); err != nil {
		return "", err
	}
	var rows strings.Builder
	if err := valueRows(&rows, "", "", page.Content[0]); err != nil {
		return "", err
	}
	return readmeHeader + rows.String(), nil
}

// valueRows writes a row for each value in a mapping. The comment of a mapping is that of its first value.
func valueRows(rows *strings.Builder, prefix, inherited string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		description := describe(key, value)
		if i == 0 && inherited != "" {
			description = strings.TrimSpace(inherited + " " + description)
		}
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			if err := valueRows(rows, name+".", description, value); err != nil {
				return err
			}
			continue
		}
		var plain any
		if err := value.Decode(&plain); err != nil {
			return err
		}
		text, err := json.Marshal(plain)
		if err != nil {
			return err
		}
		fmt.Fprintf(rows, "| `%s` | `%s` | %s |\n", name, text, description)
	}
	return nil
}

// describe is what the comments above and beside a value say, without their examples.
func describe(key, value *yaml.Node) string {
	paragraphs := strings.Split(key.HeadComment, "\n\n")
	text, _, _ := strings.Cut(paragraphs[len(paragraphs)-1], "For example:")
	words := text + " " + value.LineComment + " " + key.LineComment
	words = strings.NewReplacer("#", " ", "|", `\|`, "\n", " ").Replace(words)
	return strings.Join(strings.Fields(words), " ")
}
