package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Everything here asks LVM on the node itself, with the node's own commands: the driver's word is not taken.

// group is one row of vgs.
type group struct {
	Name        string `json:"vg_name"`
	ExtentSize  string `json:"vg_extent_size"`
	FreeExtents string `json:"vg_free_count"`
}

// logicalVolume is one row of lvs.
type logicalVolume struct {
	Name  string `json:"lv_name"`
	Group string `json:"vg_name"`
	Size  string `json:"lv_size"`
	Tags  string `json:"lv_tags"`
}

// isPool tells whether it is a thin pool of the driver, which stays when its volumes are gone.
func (v logicalVolume) isPool() bool {
	return slices.Contains(strings.Split(v.Tags, ","), "nodelvm.kind=pool")
}

// groups lists a node's groups; options are more of vgs's.
func (s *Stage) groups(ctx context.Context, node string, options ...string) ([]group, error) {
	return report[group](ctx, s, node, "vg", append([]string{"vgs", "-o", "vg_name,vg_extent_size,vg_free_count"}, options...)...)
}

func (s *Stage) logicalVolumes(ctx context.Context, node string) ([]logicalVolume, error) {
	return report[logicalVolume](ctx, s, node, "lv", "lvs", "-o", "lv_name,vg_name,lv_size,lv_tags")
}

// report runs one of LVM's reporting commands on a node and decodes the rows under key.
func report[T any](ctx context.Context, s *Stage, node, key string, argv ...string) ([]T, error) {
	argv = append(argv, "--reportformat", "json", "--units", "b", "--nosuffix")
	out, err := s.run(ctx, node, argv...)
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

// run executes a command on a node and fails unless it exits with 0.
func (s *Stage) run(ctx context.Context, node string, argv ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	code, err := s.Lab.Exec(ctx, node, nil, &out, &errs, argv...)
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("%s on %s exited with %d: %s", strings.Join(argv, " "), node, code, errs.String())
	}
	return out.Bytes(), nil
}

// kubectl runs kubectl against the lab and returns what it printed. Where it did not even reach the API server, or that not
// the kubelet, it is run again.
func (s *Stage) kubectl(ctx context.Context, stdin string, args ...string) (said string, err error) {
	late := eventually(ctx, func() error {
		if said, err = s.kubectlOnce(ctx, stdin, args...); isUnasked(err) {
			return err
		}
		return nil
	})
	return said, cmp.Or(late, err)
}

func (s *Stage) kubectlOnce(ctx context.Context, stdin string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	if err := s.Lab.Kubectl(ctx, strings.NewReader(stdin), &out, &errs, args...); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// unasked is what kubectl says before anything was done: no command of an exec has begun, no request was answered.
var unasked = []string{
	"Unable to connect to the server", "TLS handshake timeout", "etcdserver: request timed out",
	"error dialing backend", "error sending request", "unable to upgrade connection", // to a kubelet, or to a container that is not there yet
}

func isUnasked(err error) bool {
	return err != nil && slices.ContainsFunc(unasked, func(words string) bool { return strings.Contains(err.Error(), words) })
}

// mebibytes renders a number of bytes as text.
func mebibytes(bytes string) string {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return bytes
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
