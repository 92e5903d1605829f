package dashboard

// index finds the objects of a node.
type index struct {
	Objects
	volumes  map[string]Volume   // by handle
	onNode   map[string][]Volume // by node
	claimsOn map[string][]Claim  // without a readable PersistentVolume, by node
}

func newIndex(objects Objects) *index {
	x := &index{Objects: objects, volumes: map[string]Volume{}, onNode: map[string][]Volume{}, claimsOn: map[string][]Claim{}}
	claimed := map[string]bool{}
	for _, v := range objects.Volumes {
		x.volumes[v.Handle] = v
		claimed[v.Claim] = true
		if v.Node != "" {
			x.onNode[v.Node] = append(x.onNode[v.Node], v)
		}
	}
	for _, c := range objects.Claims {
		if !claimed[c.Claim] {
			x.claimsOn[c.Node] = append(x.claimsOn[c.Node], c)
		}
	}
	return x
}

// nodes lists the nodes that the objects name.
func (x *index) nodes() (names []string) {
	for name := range x.onNode {
		names = append(names, name)
	}
	for name := range x.claimsOn {
		names = append(names, name)
	}
	return names
}
