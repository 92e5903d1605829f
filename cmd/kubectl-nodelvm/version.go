package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

// versions is the result of the command version.
type versions struct {
	Plugin  string          `json:"plugin"`
	Drivers []driverVersion `json:"drivers"`
}

type driverVersion struct {
	Node    string `json:"node"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"` // why the version is unknown
}

func (c *command) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and of each node's driver",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Plugin: version, Drivers: []driverVersion{}}
			cluster, err := c.connect()
			if err == nil {
				var answers []answer
				answers, err = cluster.allAnswers(cmd.Context())
				v.Drivers = driverVersionsOf(answers)
			}
			if failed := c.settings.print(cmd.OutOrStdout(), v, v.write); failed != nil {
				return failed
			}
			return err
		},
	}
}

func driverVersionsOf(answers []answer) []driverVersion {
	list := []driverVersion{}
	for _, a := range answers {
		d := driverVersion{Node: a.node, Version: a.page.Version}
		if a.err != nil {
			d = driverVersion{Node: a.node, Error: a.err.Error()}
		}
		list = append(list, d)
	}
	return list
}

// write prints a line for each version, with the nodes that have it.
func (v versions) write(w io.Writer) error {
	var lines []string
	nodes := map[string][]string{}
	for _, d := range v.Drivers {
		line := "driver: " + d.Version
		if d.Error != "" {
			line = "driver: unknown, because " + d.Error
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
		nodes[line] = append(nodes[line], d.Node)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "plugin: %s\n", v.Plugin)
	for _, line := range lines {
		fmt.Fprintf(&b, "%s (%s)\n", printable.Text(line), printable.Text(nodeWords(nodes[line])))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
