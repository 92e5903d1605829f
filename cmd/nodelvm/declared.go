package main

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/lvm"
)

// declarations is the file of --volume-groups-file, YAML or JSON, and the chart's value volumeGroups.
type declarations struct {
	VolumeGroups []declaredGroup `json:"volumeGroups"`
}

type declaredGroup struct {
	Name       lvm.VGName       `json:"name"`
	Tags       []string         `json:"tags"`
	Devices    []declaredDevice `json:"devices"`
	MaxDevices *int             `json:"maxDevices"`
	ThinPool   *declaredPool    `json:"thinPool"`
}

type declaredDevice struct {
	Paths      []string           `json:"paths"`
	MinSize    *resource.Quantity `json:"minSize"`
	MaxSize    *resource.Quantity `json:"maxSize"`
	Rotational *bool              `json:"rotational"`
	Model      string             `json:"model"`
}

type declaredPool struct {
	Name           string             `json:"name"`
	Size           *resource.Quantity `json:"size"`
	GrowAt         int                `json:"autoextendThreshold"`
	GrowMetadataAt int                `json:"metadataAutoextendThreshold"`
}

// readDeclarations reads the declared volume groups of a node. It refuses an unknown field, so that the admin learns of a typo,
// and one without a value: an empty condition would match all disks.
func readDeclarations(path string) ([]lvm.Declaration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the volume groups that are declared: %w", err)
	}
	var file declarations
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("the volume groups that are declared in %s: %w", path, err)
	}
	var all any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the volume groups that are declared in %s: %w", path, err)
	}
	if empty := emptyField(all); empty != "" {
		return nil, fmt.Errorf("the volume groups that are declared in %s: %s has no value: set one, or omit it", path, empty)
	}
	declared := make([]lvm.Declaration, 0, len(file.VolumeGroups))
	for _, g := range file.VolumeGroups {
		d := lvm.Declaration{Name: g.Name, Tags: g.Tags}
		if g.MaxDevices != nil {
			if d.MaxDevices = *g.MaxDevices; d.MaxDevices < 1 {
				return nil, fmt.Errorf("volume group %s: maxDevices is %d: use 1 or more, or omit it for no limit", g.Name, d.MaxDevices)
			}
		}
		for _, s := range g.Devices {
			d.Devices = append(d.Devices, lvm.Selector{
				Paths: s.Paths, MinSize: bytesOf(s.MinSize), MaxSize: bytesOf(s.MaxSize), Rotational: s.Rotational, Model: s.Model,
			})
		}
		if p := g.ThinPool; p != nil {
			d.Pool = lvm.PoolPolicy{Name: p.Name, Size: bytesOf(p.Size), AutoextendThreshold: p.GrowAt, MetadataAutoextendThreshold: p.GrowMetadataAt}
			if d.Pool.Name == "" {
				d.Pool.Name = lvm.DefaultPool
			}
		}
		declared = append(declared, d)
	}
	return declared, nil
}

// emptyField returns the name of a field without a value, at any depth; "": none.
func emptyField(value any) string {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if v[name] == nil {
				return name
			}
			if empty := emptyField(v[name]); empty != "" {
				return empty
			}
		}
	case []any:
		for _, item := range v {
			if item == nil {
				return "an item of a list"
			}
			if empty := emptyField(item); empty != "" {
				return empty
			}
		}
	}
	return ""
}

func bytesOf(q *resource.Quantity) lvm.Bytes {
	if q == nil {
		return 0
	}
	return lvm.Bytes(q.Value())
}
