package identity

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestVolumesOfAnotherCluster: a driver neither lists nor deletes the volumes of another cluster, nor creates one with the name
// of such a volume, and starts no process for such requests. It does activate one that a PersistentVolume of its cluster names:
// an admin restored that object.
func TestVolumesOfAnotherCluster(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	d := &hosttest.Driver{}
	d.Host = node.Start(t, lvm.Config{Cluster: "another", Observe: d.Observe})
	theirs := d.MustCreate(t, b.Spec("theirs", 8*lvm.MiB))
	d.Stop(t)
	d.Host = node.Start(t, lvm.Config{Cluster: hosttest.Cluster, Observe: d.Observe})
	tags := hosttest.StateTags(node, b.Group)
	if list, err := d.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("it lists %+v, %v", list, err)
	}
	before := len(node.Commands())
	err := d.Delete(t.Context(), theirs.ID)
	if hosttest.WantKind(t, "delete", err, lvm.KindNotManaged); err != nil && !strings.Contains(err.Error(), `belongs to the cluster "another"`) {
		t.Errorf("delete: %v", err)
	}
	hosttest.Refused(t, "create one with the name", lvm.KindExists)(d.Create(t.Context(), b.Spec("theirs", 8*lvm.MiB)))
	if commands := node.Commands()[before:]; len(commands) != 0 {
		t.Errorf("it ran %+v", commands)
	}
	if _, err := d.Activate(t.Context(), theirs.ID, theirs.UUID); err != nil {
		t.Errorf("activate a volume that a PersistentVolume names: %v", err)
	}
	if now := hosttest.StateTags(node, b.Group); len(now) != len(tags) || now["ready"] != tags["ready"] {
		t.Errorf("the states changed from %v to %v", tags, now)
	}
}
