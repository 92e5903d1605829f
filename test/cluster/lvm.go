package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// VolumeGroup is one row of vgs.
type VolumeGroup struct {
	Name        string `json:"vg_name"`
	ExtentSize  string `json:"vg_extent_size"`
	FreeExtents string `json:"vg_free_count"`
}

// LogicalVolume is one row of lvs.
type LogicalVolume struct {
	Name  string `json:"lv_name"`
	Group string `json:"vg_name"`
	Size  string `json:"lv_size"`
	Tags  string `json:"lv_tags"`
}

// IsPool reports whether the volume is a thin pool of the driver, which stays when its volumes are deleted.
func (v LogicalVolume) IsPool() bool {
	return slices.Contains(strings.Split(v.Tags, ","), "nodelvm.kind=pool")
}

// VolumeGroups lists a node's volume groups; options are additional options of vgs.
func (c *Cluster) VolumeGroups(ctx context.Context, node string, options ...string) ([]VolumeGroup, error) {
	return ReportLVM[VolumeGroup](ctx, c, node, "vg", append([]string{"vgs", "-o", "vg_name,vg_extent_size,vg_free_count"}, options...)...)
}

func (c *Cluster) LogicalVolumes(ctx context.Context, node string) ([]LogicalVolume, error) {
	return ReportLVM[LogicalVolume](ctx, c, node, "lv", "lvs", "-o", "lv_name,vg_name,lv_size,lv_tags")
}

// CheckOnlyPools fails if a node has a logical volume that is not the driver's pool.
func (c *Cluster) CheckOnlyPools(ctx context.Context) error {
	return c.CheckNoVolumes(ctx, LogicalVolume.IsPool)
}

// CheckNoVolumes fails if any node has a logical volume, other than those that may stay.
func (c *Cluster) CheckNoVolumes(ctx context.Context, mayStay ...func(LogicalVolume) bool) error {
	for _, node := range c.Lab.NodeNames() {
		rows, err := c.LogicalVolumes(ctx, node)
		if err != nil {
			return err
		}
		for _, may := range mayStay {
			rows = slices.DeleteFunc(rows, may)
		}
		if len(rows) > 0 {
			return fmt.Errorf("%s has %d logical volumes: %v", node, len(rows), rows)
		}
	}
	return nil
}

// FreeExtents returns the number of free extents in a node's groups, and the size of an extent in bytes; options are additional
// options of vgs.
func (c *Cluster) FreeExtents(ctx context.Context, node string, options ...string) (count, size int64, err error) {
	groups, err := c.VolumeGroups(ctx, node, options...)
	if err != nil {
		return 0, 0, err
	}
	for _, g := range groups {
		free, err := strconv.ParseInt(g.FreeExtents, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if size, err = strconv.ParseInt(g.ExtentSize, 10, 64); err != nil {
			return 0, 0, err
		}
		count += free
	}
	return count, size, nil
}

// ReportLVM runs one of LVM's reporting commands on a node and returns the rows under key.
func ReportLVM[T any](ctx context.Context, c *Cluster, node, key string, argv ...string) ([]T, error) {
	argv = append(argv, "--reportformat", "json", "--units", "b", "--nosuffix")
	out, err := c.RunOnNode(ctx, node, argv...)
	if err != nil {
		return nil, err
	}
	var parsed struct{ Report []map[string][]T }
	if err := json.Unmarshal(out, &parsed); err != nil {
		return nil, fmt.Errorf("%s on %s answered %q: %w", argv[0], node, out, err)
	}
	var rows []T
	for _, r := range parsed.Report {
		rows = append(rows, r[key]...)
	}
	return rows, nil
}

// RunOnNode runs a command on a node and returns its output. It fails unless the command exits with 0.
func (c *Cluster) RunOnNode(ctx context.Context, node string, argv ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	code, err := c.Lab.Exec(ctx, node, nil, &out, &errs, argv...)
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("%s on %s exited with %d: %s", strings.Join(argv, " "), node, code, errs.String())
	}
	return out.Bytes(), nil
}

// Mebibytes converts a decimal number of bytes to text in MiB.
func Mebibytes(bytes string) string {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return bytes
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
