package lvmtest

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// poolKernel is the kernel's state of a thin pool: its devices, by the numbers that LVM assigns to its volumes.
type poolKernel struct {
	devices map[int]bool
	behind  bool // it has not counted LVM's pending messages

	transaction uint64 // the pool's own id
	held        bool   // it has a metadata snapshot
}

func (n *Node) kernelOf(pool *lvm.LV) *poolKernel {
	if n.pools[pool.UUID] == nil {
		n.pools[pool.UUID] = &poolKernel{devices: map[int]bool{}}
	}
	return n.pools[pool.UUID]
}

// number is a thin volume's number in its pool; a new one gets the last number plus one.
func (n *Node) number(g *group, lv *lvm.LV) int {
	if n.numbers[lv.UUID] == 0 {
		last := 0
		for _, other := range g.LVs {
			if other.Pool == lv.Pool {
				last = max(last, n.numbers[other.UUID])
			}
		}
		n.numbers[lv.UUID] = last + 1
	}
	lv.ThinID = n.numbers[lv.UUID]
	return n.numbers[lv.UUID]
}

// queue adds a message for a pool, as attach_pool_message does: only the first one makes the pool's count differ from LVM's.
func (n *Node) queue(pool *lvm.LV, message string) {
	if len(pool.Thin.Messages) == 0 {
		n.kernelOf(pool).behind = true
		pool.Thin.TransactionID++
	}
	pool.Thin.Messages = append(slices.Clone(pool.Thin.Messages), message)
}

// tell sends a pool its messages, unless the pool has counted them, and drops them, as update_pool_lv does.
func (n *Node) tell(g *group, pool *lvm.LV) *failure {
	if len(pool.Thin.Messages) == 0 {
		return nil
	}
	k := n.kernelOf(pool)
	for _, message := range pool.Thin.Messages {
		var volume string
		var number int
		if _, err := fmt.Sscanf(message, "delete %d", &number); err == nil {
			if k.behind {
				delete(k.devices, number)
			}
			continue
		}
		if _, err := fmt.Sscanf(message, "create %s", &volume); err != nil || !k.behind {
			continue
		}
		made := g.find(volume)
		if number = n.number(g, made); k.devices[number] && n.path(g, made.UUID) == "" {
			return failed("Thin pool %s-%s-tpool already contain thin device with device_id %d.", g.Name, pool.Name, number)
		}
		k.devices[number] = true
	}
	k.behind, k.transaction = false, pool.Thin.TransactionID
	if n.messagesCounted {
		return &failure{-1, "signal: killed"}
	}
	pool.Thin.Messages = nil
	g.commit()
	return nil
}

// forget removes a thin volume and sends its pool a message. If the pool does not accept it, -ff continues without.
func (n *Node) forget(g *group, name string, force bool) *failure {
	lv := g.find(name)
	pool, number, message := g.find(lv.Pool), n.number(g, lv), "create "+name
	queued, deaf := slices.Contains(pool.Thin.Messages, message), false
	if queued {
		f := n.tell(g, pool)
		if f != nil && !force {
			return f
		}
		deaf = f != nil
	}
	poolName := pool.Name
	g.drop(name)
	pool = g.find(poolName)
	if deaf {
		pool.Thin.Messages = slices.DeleteFunc(slices.Clone(pool.Thin.Messages), func(m string) bool { return m == message })
		pool.Thin.Messages = append(pool.Thin.Messages, fmt.Sprintf("delete %d", number))
	} else {
		n.queue(pool, fmt.Sprintf("delete %d", number))
	}
	g.commit()
	if deaf {
		return nil
	}
	return n.tell(g, pool)
}

// lost lists the devices that only the pool has, and those that only LVM has.
func (n *Node) lost(g *group, name string) []int {
	pool := g.find(name)
	if pool == nil {
		return nil
	}
	differ := map[int]bool{}
	for number := range n.kernelOf(pool).devices {
		differ[number] = true
	}
	for i := range g.LVs {
		if lv := &g.LVs[i]; lv.Pool == name {
			number := n.number(g, lv)
			differ[number] = !differ[number]
		}
	}
	var list []int
	for number, is := range differ {
		if is {
			list = append(list, number)
		}
	}
	slices.Sort(list)
	return list
}
