package pending

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
)

// RegistrationProblem says what is missing of the registration of a node's driver; "": nothing. csi is nil if the CSINode does not
// exist.
func RegistrationProblem(node *corev1.Node, csi *storagev1.CSINode) string {
	var texts []string
	for _, o := range registrationObstacles(node, csi) {
		texts = append(texts, o.text)
	}
	return strings.Join(texts, ", and ")
}

func registrationObstacles(node *corev1.Node, csi *storagev1.CSINode) []obstacle {
	found := labelObstacles(node)
	registered := csi != nil && slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == api.DriverName && d.NodeID == node.Name && slices.Contains(d.TopologyKeys, api.TopologyKey)
	})
	if !registered {
		found = append(found, obstacle{fmt.Sprintf("CSINode %s lacks the driver %s", node.Name, api.DriverName),
			"delete the driver's pod on " + node.Name + ": the kubelet registers the next one"})
	}
	return found
}

// labelObstacles say that the topology label of a node, which the affinity of PersistentVolumes and the published capacity name, is not
// the node's.
func labelObstacles(node *corev1.Node) []obstacle {
	fix := fmt.Sprintf("kubectl label node %s --overwrite %s=%s", node.Name, api.TopologyKey, node.Name)
	switch label, has := node.Labels[api.TopologyKey]; {
	case !has:
		return []obstacle{{fmt.Sprintf("node %s lacks the label %s", node.Name, api.TopologyKey), fix}}
	case label != node.Name:
		return []obstacle{{fmt.Sprintf("the label %s of node %s is %q", api.TopologyKey, node.Name, label), fix}}
	}
	return nil
}
