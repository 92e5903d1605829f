//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nodelvm/nodelvm/kube/move"
	"github.com/nodelvm/nodelvm/lvm"
)

// copies is a node's volumes, without data: what the agents of a move see of an engine.
type copies struct {
	move.Rounds // nil: none of its volumes is thin

	node  string
	stuck bool // no copy of a volume to this node is ever complete

	mu   sync.Mutex
	vols map[string]*move.Local
}

// peers are the volumes of all nodes, by name of the node: what the network connects.
var peers sync.Map

func newCopies(node string) *copies {
	c := &copies{node: node, vols: map[string]*move.Local{}}
	peers.Store(node, c)
	return c
}

// make makes a ready volume.
func (c *copies) make(name, claim string) lvm.Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := lvm.Volume{ID: lvm.ID{VG: "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG", LV: name}, UUID: "lv-" + c.node, Name: name, Claim: claim, Group: "vg", State: lvm.StateReady, Size: lvm.GiB}
	c.vols[name] = &move.Local{Volume: v}
	return v
}

// setStuck says whether copies to this node are never complete.
func (c *copies) setStuck(stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck = stuck
}

func (c *copies) find(name string) *move.Local {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.vols[name]; l != nil {
		found := *l
		return &found
	}
	return nil
}

// change changes a volume if it is in one of the states from; to itself is no change.
func (c *copies) change(id lvm.ID, do func(*move.Local) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.vols[id.LV]
	if l == nil || l.ID != id {
		return lvm.Errorf(lvm.KindNotFound, "no volume %s", id)
	}
	return do(l)
}

func become(l *move.Local, from, to lvm.VolumeState) error {
	if l.State != from && l.State != to {
		return lvm.Errorf(lvm.KindConflict, "%s is %s", l.ID, l.State)
	}
	l.State = to
	return nil
}

func (c *copies) Volumes(context.Context) (list []move.Local, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.vols {
		list = append(list, *l)
	}
	return list, nil
}

func (c *copies) Note(_ context.Context, id lvm.ID, _, record string) error {
	return c.change(id, func(l *move.Local) error { l.Record = record; return nil })
}

func (c *copies) Hold(_ context.Context, id lvm.ID, _ string) (o move.Offer, err error) {
	return o, c.change(id, func(l *move.Local) error {
		if l.State == lvm.StateReady {
			l.Move += "+"
		}
		text, err := json.Marshal([]string{c.node, id.LV})
		o = move.Offer{Move: l.Move, Text: text}
		return errors.Join(err, become(l, lvm.StateReady, "moving"))
	})
}

func (c *copies) Cancel(_ context.Context, id lvm.ID, _ string) error {
	return c.change(id, func(l *move.Local) error { return become(l, "moving", lvm.StateReady) })
}

func (c *copies) HandOver(_ context.Context, id lvm.ID, _, hold string) error {
	return c.change(id, func(l *move.Local) error {
		if l.Move != hold {
			return lvm.Errorf(lvm.KindConflict, "%s is held for another move", id)
		}
		return become(l, "moving", "moved")
	})
}

func (c *copies) Remove(_ context.Context, id lvm.ID, _ string) error {
	return c.change(id, func(l *move.Local) error { delete(c.vols, id.LV); return become(l, "moved", "moved") })
}

func (c *copies) Receive(_ context.Context, o move.Offer, _ move.Offered, _ map[string]string) (p move.Progress, err error) {
	var from [2]string
	if err := json.Unmarshal(o.Text, &from); err != nil {
		return p, err
	}
	peer, ok := peers.Load(from[0])
	if !ok {
		return p, errors.New("no such peer")
	}
	held := peer.(*copies).find(from[1])
	if held == nil || held.State != "moving" || held.Move != o.Move {
		return p, errors.New("the peer does not offer it")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.vols[from[1]]
	if l == nil {
		l = &move.Local{Volume: held.Volume, Move: o.Move}
		l.ID.VG = "BBBBBB-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG"
		if held.ID.VG == l.ID.VG {
			l.ID.VG = "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG" // back: no two nodes have one group
		}
		l.UUID, l.State, l.Claim = fmt.Sprint("lv-", c.node), "receiving", ""
		c.vols[from[1]] = l
		return move.Progress{Total: held.Size}, nil
	}
	if !c.stuck {
		l.State = "received"
	}
	return move.Progress{Done: held.Size, Total: held.Size}, nil
}

func (c *copies) Finish(_ context.Context, id lvm.ID, _ string) error {
	return c.change(id, func(l *move.Local) error { return become(l, "received", lvm.StateReady) })
}

func (c *copies) Discard(_ context.Context, id lvm.ID, _ string) error {
	return c.change(id, func(l *move.Local) error {
		if l.State != "receiving" && l.State != "received" {
			return lvm.Errorf(lvm.KindConflict, "%s is %s", id, l.State)
		}
		delete(c.vols, id.LV)
		return nil
	})
}

func (c *copies) DropUnneeded(context.Context) error { return nil }

func (c *copies) Key() string { return "key of " + c.node }
