package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volume is what Kubernetes and LVM report about one claim's volume.
type Volume struct {
	Claim, Node, Group, Lv, Size string
}

// VolumeOf returns the logical volume of a bound claim. It fails if lvs does not list the volume on the node of the
// PersistentVolume.
func (c *Cluster) VolumeOf(ctx context.Context, claim string) (Volume, error) {
	pvc, err := c.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return Volume{}, err
	}
	if pvc.Status.Phase != corev1.ClaimBound {
		return Volume{}, fmt.Errorf("claim %s is %s", claim, pvc.Status.Phase)
	}
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return Volume{}, err
	}
	node, err := AffinityNode(pv)
	if err != nil {
		return Volume{}, err
	}
	_, lv, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	rows, err := c.LogicalVolumes(ctx, node)
	if err != nil {
		return Volume{}, err
	}
	for _, row := range rows {
		if row.Name == lv {
			return Volume{Claim: claim, Node: node, Group: row.Group, Lv: lv, Size: row.Size}, nil
		}
	}
	return Volume{}, fmt.Errorf("PV %s names node %s and LV %s, but lvs on that node does not show it", pv.Name, node, lv)
}

// AffinityNode returns the node of a PersistentVolume's affinity.
func AffinityNode(pv *corev1.PersistentVolume) (string, error) {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return "", fmt.Errorf("PV %s has no node affinity", pv.Name)
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == TopologyKey && len(e.Values) == 1 {
				return e.Values[0], nil
			}
		}
	}
	return "", fmt.Errorf("PV %s has no affinity on %s", pv.Name, TopologyKey)
}

// ShowVolumes prints a table of the claims with their pods and volumes, unless it is the table that it printed last.
func (c *Cluster) ShowVolumes(ctx context.Context) error {
	claims, err := c.Client.CoreV1().PersistentVolumeClaims(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	users, err := c.usersOfClaims(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, pvc := range claims.Items {
		v, err := c.VolumeOf(ctx, pvc.Name)
		if err != nil {
			rows = append(rows, []string{users[pvc.Name], pvc.Name, "-", "-", string(pvc.Status.Phase), "-"})
			continue
		}
		rows = append(rows, []string{users[pvc.Name], pvc.Name, v.Node, v.Group, v.Lv, Mebibytes(v.Size)})
	}
	text := fmt.Sprint(rows)
	if len(rows) > 0 && text != c.shown {
		c.Reporter.Table([]string{"POD", "CLAIM", "NODE", "VOLUME GROUP", "LOGICAL VOLUME", "SIZE"}, rows)
	}
	c.shown = text
	return nil
}

// usersOfClaims maps each claim to the pod that mounts it.
func (c *Cluster) usersOfClaims(ctx context.Context) (map[string]string, error) {
	pods, err := c.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for _, pod := range pods.Items {
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				users[v.PersistentVolumeClaim.ClaimName] = pod.Name
			}
		}
	}
	return users, nil
}
