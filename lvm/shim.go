package lvm

// complete tells whether a volume that is in the state creating is structurally whole, so that it may have been answered.
func complete(lv LV, v Volume) bool { return !lv.Pending && v.Source == (ID{}) }
