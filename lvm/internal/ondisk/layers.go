package ondisk

import (
	"fmt"

	"github.com/nodelvm/nodelvm/lvm"
)

// maxParts exceeds the number of components of any LV, each counted for each segment on it: those of a volume in thousands of
// segments while LVM moves all of them.
const maxParts = 1 << 16

// checkLayers refuses volumes whose components form a cycle, or have more layers or members than LVM creates, so that any walk
// through a volume's components ends.
func checkLayers(g *lvm.Group) error {
	index := make(map[string]int, len(g.LVs))
	for i := range g.LVs {
		index[g.LVs[i].Name] = i
	}
	counts := make([]int, len(g.LVs)) // components of each LV, itself included; 0: not counted yet
	var count func(i, depth int) error
	count = func(i, depth int) error {
		if depth > lvm.MaxLayers {
			return fmt.Errorf("logical volume %s is a part of more than %d others, one inside the other", g.LVs[i].Name, lvm.MaxLayers)
		}
		parts := 1
		for name := range g.LVs[i].EachComponent {
			j, there := index[name]
			if !there {
				continue
			}
			if counts[j] == 0 {
				if err := count(j, depth+1); err != nil {
					return err
				}
			}
			if parts += counts[j]; parts > maxParts {
				return fmt.Errorf("logical volume %s is made of more than %d others", g.LVs[i].Name, maxParts)
			}
		}
		counts[i] = parts
		return nil
	}
	for i := range g.LVs {
		if counts[i] == 0 {
			if err := count(i, 0); err != nil {
				return err
			}
		}
	}
	return nil
}
