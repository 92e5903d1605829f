package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/test/lab"
)

func diskCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "disk ACTION NODE DISK",
		Short: "Pull a disk of a node on emulated hardware, return it, let it fail, repair it",
		Long:  "ACTION is one of " + strings.Join(lab.DiskActions(), ", ") + ". DISK is its serial number, as in the node's `lsblk -o NAME,SERIAL`.",
		Args:  cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			l, err := open()
			if err != nil {
				return err
			}
			return l.ActOnDisk(c.Context(), args[0], args[1], args[2])
		},
	}
}
