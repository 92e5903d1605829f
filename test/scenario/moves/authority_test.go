package moves

import (
	"math/rand/v2"
	"testing"
)

// TestJudge: which logical volumes and PersistentVolumes leave a claim with exactly one volume.
func TestJudge(t *testing.T) {
	plain, parked, target := object{uid: "1", node: "a"}, object{uid: "2", node: "a", parked: true}, object{uid: "3", node: "b"}
	type states = map[string]string
	for _, c := range []struct {
		states states
		pv     object
		right  bool
	}{
		{states{"a": "ready"}, plain, true},
		{states{"a": "ready"}, object{}, true},
		{states{"a": "ready", "b": "receiving"}, parked, true},
		{states{"a": "ready", "c": "moved"}, plain, true},
		{states{"a": "moving", "b": "received"}, parked, true},
		{states{"a": "moved", "b": "received"}, parked, true},
		{states{"a": "moved", "b": "ready"}, parked, true},
		{states{"a": "moved", "b": "ready"}, object{}, true},
		{states{"a": "moved", "b": "ready"}, target, true},
		{states{"b": "ready"}, target, true},
		{states{"a": "deleting", "b": "ready"}, target, true},

		{states{}, plain, false},
		{states{"a": "deleting"}, plain, false},
		{states{"a": "deleting", "b": "received"}, target, false},
		{states{"b": "receiving"}, target, false},
		{states{"a": "ready"}, target, false},
		{states{"a": "ready", "b": "ready"}, parked, false},
		{states{"a": "moving", "b": "ready"}, parked, false},
		{states{"a": "receiving", "b": "ready"}, target, false},
		{states{"a": "moved"}, parked, false},
		{states{"a": "moved", "b": "receiving"}, parked, false},
		{states{"a": "moved", "b": "received"}, target, false},
		{states{"a": "moved", "b": "ready"}, plain, false},
		{states{"a": "moved", "b": "ready", "c": "ready"}, target, false},
		{states{"b": "ready"}, object{}, false},
		{states{"b": "ready"}, parked, false},
	} {
		if err := judge("a", c.states, c.pv); (err == nil) != c.right {
			t.Errorf("%v with %+v: %v", c.states, c.pv, err)
		}
	}
}

// TestDrawnCuts: the seed decides on the number of power cuts that is asked for, of each side in each stage.
func TestDrawnCuts(t *testing.T) {
	for count := 1; count < 200; count++ {
		met, all := make([]map[string]bool, len(stages)), 0
		for _, move := range draw(rand.New(rand.NewPCG(uint64(count), 0)), count) { //nolint:gosec // what is tried, not a secret
			for i, o := range move {
				if o.side == none {
					continue
				}
				if met[i] == nil {
					met[i] = map[string]bool{}
				}
				met[i][o.side] = true
				all++
			}
		}
		if all != count {
			t.Errorf("%d power cuts, not %d", all, count)
		}
		for i := range stages {
			if len(met[i]) != len(sides) && count > 150 {
				t.Errorf("of %d power cuts %s met only %v", count, stages[i].name, met[i])
			}
		}
	}
}
