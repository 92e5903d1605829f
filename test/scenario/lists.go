package scenario

// Placement returns a third scenario: that volumes go where there is room for them, whatever happens. It needs nothing of
// the others; the thin pools that it leaves on the nodes are meant to stay.
func Placement(seed uint64) []Scenario {
	return []Scenario{
		freshCapacity(),
		newCuts(3, seed).scenario(),
	}
}

// NodeReboot returns the reboot of a node.
func NodeReboot() []Scenario { return []Scenario{reboot()} }

// Burst returns the burst of 60 volumes, which takes long.
func Burst() []Scenario { return []Scenario{newBurst(8, 20, 32).scenario()} }

// PowerCuts returns so many power cuts.
func PowerCuts(count int, seed uint64) []Scenario { return []Scenario{newCuts(count, seed).scenario()} }
