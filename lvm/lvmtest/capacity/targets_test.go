package capacity

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// classesThatNeed are the classes of a group that need a device-mapper target.
func classesThatNeed(b hosttest.Fixture) map[string][]lvm.Class {
	class := func(layout lvm.Layout, e lvm.Encryption) lvm.Class {
		return lvm.Class{Group: b.Group, Layout: layout, Encryption: e}
	}
	return map[string][]lvm.Class{
		lvm.TargetThinPool: {class(lvm.LayoutThin, ""), class(lvm.LayoutThin, lvm.EncryptionLUKS2)},
		lvm.TargetRAID:     {class(lvm.LayoutRAID1, ""), class(lvm.LayoutRAID5, ""), class(lvm.LayoutRAID10, "")},
		lvm.TargetCrypt:    {class(lvm.LayoutLinear, lvm.EncryptionLUKS2), class(lvm.LayoutThin, lvm.EncryptionLUKS2)},
	}
}

// TestCapacityWithoutTarget: a node whose kernel cannot map the volumes of a class has no capacity for it, and refuses them so that the
// scheduler turns to another node. It serves all other classes.
func TestCapacityWithoutTarget(t *testing.T) {
	for target := range classesThatNeed(hosttest.Fixture{}) {
		node := hosttest.NewNode()
		b := hosttest.OnFake(node)
		node.LackTargets(map[string]lvm.TargetState{target: lvm.TargetMissing})
		d := b.Start(t)
		for needed, classes := range classesThatNeed(b) {
			for _, class := range classes {
				serves := !slices.Contains(class.Targets(), target)
				if needed == target && serves {
					t.Errorf("%+v needs %v, not %s", class, class.Targets(), target)
				}
				if c := d.MustCapacity(t, class); (c.Largest > 0) != serves || (c.Available > 0) != serves {
					t.Errorf("without %s, the capacity for %+v is %+v", target, class, c)
				}
				if serves {
					continue
				}
				_, err := d.Create(t.Context(), lvm.Spec{Name: "v", Class: class, Required: lvm.MiB})
				wantRefusal(t, err, target)
				offers, err := d.CapacityByGroup(t.Context(), class)
				if err != nil || len(offers) != 1 || !strings.Contains(offers[0].Obstacle, "dm-"+target) {
					t.Errorf("without %s, the obstacle for %+v is in %+v, %v", target, class, offers, err)
				}
			}
		}
		if c := d.MustCapacity(t, b.Class()); c.Largest == 0 {
			t.Errorf("without %s, no linear volume is possible", target)
		}
	}
}

// TestModuleThatCannotBeLoaded: a module counts while its file is there. When LVM could not load it, the node has no capacity for what
// needs it, and the request that found out goes to another node.
func TestModuleThatCannotBeLoaded(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	node.LackTargets(map[string]lvm.TargetState{lvm.TargetRAID: lvm.TargetLoadable, lvm.TargetThinPool: lvm.TargetLoadable})
	d := b.Start(t)
	class := lvm.Class{Group: b.Group, Layout: lvm.LayoutRAID1}
	if c := d.MustCapacity(t, class); c.Largest == 0 {
		t.Errorf("at first the capacity is %+v", c)
	}
	_, err := d.Create(t.Context(), lvm.Spec{Name: "v", Class: class, Required: lvm.MiB})
	wantRefusal(t, err, lvm.TargetRAID)
	if c := d.MustCapacity(t, class); c != (lvm.Capacity{}) {
		t.Errorf("after that the capacity is %+v", c)
	}
	class.Layout = lvm.LayoutThin
	if c := d.MustCapacity(t, class); c.Largest == 0 {
		t.Errorf("for what LVM did not try, the capacity is %+v", c)
	}
	if n := len(node.Group("vg-test").LVs); n != 0 {
		t.Errorf("%d volumes exist", n)
	}
}

func wantRefusal(t *testing.T, err error, target string) {
	t.Helper()
	hosttest.WantKind(t, "create", err, lvm.KindInsufficientCapacity)
	if err != nil && !strings.Contains(err.Error(), "has no module dm-"+target) {
		t.Errorf("the error does not name the module of %s: %v", target, err)
	}
}
