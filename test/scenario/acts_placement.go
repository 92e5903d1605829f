package scenario

// PlacementActs returns a third scenario: that volumes go where there is room for them, whatever happens. It needs nothing of
// the others; the thin pools that it leaves on the nodes are meant to stay.
func PlacementActs(seed uint64) []Act {
	return []Act{
		freshCapacity(),
		newCuts(3, seed).act(),
	}
}

// RebootActs returns the reboot of a node.
func RebootActs() []Act { return []Act{reboot()} }

// BurstActs returns the burst of 60 volumes, which takes long.
func BurstActs() []Act { return []Act{newBurst(8, 20, 32).act()} }

// CutActs returns so many power cuts.
func CutActs(count int, seed uint64) []Act { return []Act{newCuts(count, seed).act()} }
