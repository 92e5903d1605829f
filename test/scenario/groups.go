package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

const dropPools = `for pool in $(lvs --noheadings -o vg_name,lv_name --separator / -S 'segtype=thin-pool && thin_count=0'); do lvremove -y -qq $pool; done`

// DropEmptyPools removes a node's empty thin pools, as the driver does some time later: a pool keeps the extents that earlier scenarios had it
// grow to, perhaps the whole of a disk.
func (env *Environment) DropEmptyPools(ctx context.Context, node string) error {
	_, err := env.RunOnNode(ctx, node, "sh", "-ec", dropPools)
	return err
}

// RunInGroup runs a script on the node, with the name of its volume group in the place of GROUP.
func (env *Environment) RunInGroup(ctx context.Context, node, script string) error {
	groups, err := env.VolumeGroups(ctx, node)
	if err != nil {
		return err
	}
	for _, g := range groups {
		out, err := env.RunOnNode(ctx, node, "sh", "-ec", strings.ReplaceAll(script, "GROUP", g.Name))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// GroupState is what LVM reports of a node's volume group.
type GroupState struct {
	FreeExtents int64
	ExtentSize  int64 // in bytes
	Volumes     int64 // number of logical volumes
	LostDisks   int64 // number of missing physical volumes
}

// Capacity returns the size of the largest linear volume in bytes: 0 while a disk is missing.
func (n GroupState) Capacity() int64 {
	if n.LostDisks > 0 {
		return 0
	}
	return n.FreeExtents * n.ExtentSize
}

// GroupState asks LVM on a node that has exactly one volume group.
func (env *Environment) GroupState(ctx context.Context, node string) (now GroupState, err error) {
	type row struct {
		Extents string `json:"vg_free_count"`
		Size    string `json:"vg_extent_size"`
		Volumes string `json:"lv_count"`
		Lost    string `json:"vg_missing_pv_count"`
	}
	rows, err := cluster.ReportLVM[row](ctx, env.Cluster, node, "vg", "vgs", "-o", "vg_free_count,vg_extent_size,lv_count,vg_missing_pv_count")
	if err != nil {
		return now, err
	}
	if len(rows) != 1 {
		return now, fmt.Errorf("%s has %d volume groups", node, len(rows))
	}
	for text, to := range map[string]*int64{rows[0].Extents: &now.FreeExtents, rows[0].Size: &now.ExtentSize, rows[0].Volumes: &now.Volumes, rows[0].Lost: &now.LostDisks} {
		if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
			return now, err
		}
	}
	return now, nil
}
