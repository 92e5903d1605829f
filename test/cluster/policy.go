package cluster

import (
	"context"
	"encoding/json"
	"fmt"
)

// SetPolicyVariable replaces the expression of a variable in the admission policy that restricts the nodes.
func (c *Cluster) SetPolicyVariable(ctx context.Context, name, expression string) error {
	const object = "validatingadmissionpolicy/nodelvm-node-restriction"
	text, err := c.Kubectl(ctx, "", "get", object, "-o", "json")
	if err != nil {
		return err
	}
	var policy struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return err
	}
	for i, v := range policy.Spec.Variables {
		if v.Name == name {
			patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": fmt.Sprintf("/spec/variables/%d/expression", i), "value": expression}})
			if err != nil {
				return err
			}
			_, err = c.Kubectl(ctx, "", "patch", object, "--type=json", "-p", string(patch))
			return err
		}
	}
	return fmt.Errorf("%s has no variable %s", object, name)
}
