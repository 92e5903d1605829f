package luks

import "github.com/nodelvm/nodelvm/lvm"

// opener says which key opens a key slot.
type opener int

const (
	opensOther opener = iota // neither: a slot that an admin added
	opensCurrent
	opensPrevious
)

// planRotation decides from the key slots of a volume and the keys that open them. add: the current key has no slot yet. remove:
// the slots of the previous key, which the caller removes after it has tested a slot with the current key.
func planRotation(v Volume, slots map[int]opener) (add bool, remove []int, err error) {
	current := 0
	for number, by := range slots {
		switch by {
		case opensCurrent:
			current++
		case opensPrevious:
			remove = append(remove, number)
		case opensOther:
		}
	}
	if current == 0 && len(remove) == 0 {
		return false, nil, wrongKey(v, true)
	}
	return current == 0, remove, nil
}

// wrongKey returns the error for a volume that no key of the Secret opens; both: the driver tried the previous one too.
func wrongKey(v Volume, both bool) error {
	keys := "the key in the Secret does not open"
	if both {
		keys = "neither the key nor the previous key in the Secret opens"
	}
	return lvm.Errorf(lvm.KindConflict, "%s volume %s (%s). Put the volume's key into the Secret that its PersistentVolume names; during a rotation, into the field %s", keys, v.Handle, v.Device, FieldPreviousKey)
}
