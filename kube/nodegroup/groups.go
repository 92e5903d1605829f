package nodegroup

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
)

// Group is a node group whose nodes have the same disks.
type Group struct {
	Name     string                       `json:"name"`
	Labels   map[string]string            `json:"labels"`   // of each node and of cluster-autoscaler's template
	Capacity map[string]resource.Quantity `json:"capacity"` // of an empty node, by storage class; without an entry, the Publisher learns it
}

// Read reads node groups from a file, YAML or JSON. It refuses groups with the same name or the same labels.
func Read(path string) ([]Group, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the node groups: %w", err)
	}
	var file struct {
		NodeGroups []Group `json:"nodeGroups"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("cannot read the node groups in %s: %w", path, err)
	}
	for i, g := range file.NodeGroups {
		if err := g.check(); err != nil {
			return nil, fmt.Errorf("node group %q in %s: %w", g.Name, path, err)
		}
		for _, other := range file.NodeGroups[:i] {
			switch {
			case other.Name == g.Name:
				return nil, fmt.Errorf("two node groups in %s are named %q: rename one", path, g.Name)
			case maps.Equal(other.Labels, g.Labels):
				return nil, fmt.Errorf("node groups %q and %q in %s have the same labels: add a label that distinguishes their nodes, or remove one group", other.Name, g.Name, path)
			}
		}
	}
	return file.NodeGroups, nil
}

func (g Group) check() error {
	if errs := validation.IsDNS1123Label(g.Name); len(errs) > 0 {
		return fmt.Errorf("invalid name: %s", errs[0])
	}
	if len(g.Labels) == 0 {
		return fmt.Errorf("it has no labels: set those that distinguish its nodes")
	}
	for key, value := range g.Labels {
		if errs := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(errs) > 0 {
			return fmt.Errorf("invalid label %s=%s: %s", key, value, errs[0])
		}
		if key == api.TopologyKey || key == api.LabelTemplateNode {
			return fmt.Errorf("label %s distinguishes no node group: remove it", key)
		}
	}
	for class, size := range g.Capacity {
		if size.Sign() < 0 {
			return fmt.Errorf("capacity of class %s is %s: set it to 0 or more", class, size.String())
		}
	}
	return nil
}
