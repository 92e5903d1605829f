package report

import (
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Disk identifies a disk for the person who must find it. Empty fields are unknown.
type Disk struct {
	Path   string    `json:"path"` // under /dev, when it was last seen
	Model  string    `json:"model,omitempty"`
	Serial string    `json:"serial,omitempty"`
	WWN    string    `json:"wwn,omitempty"`
	Slot   string    `json:"slot,omitempty"` // the enclosure's, or the address on the bus
	Size   lvm.Bytes `json:"size,omitempty"`
	Seen   time.Time `json:"lastSeen"`
}

// String describes the disk in a message.
func (d Disk) String() string {
	var words []string
	add := func(label, value string) {
		if value != "" {
			words = append(words, label+value)
		}
	}
	add("", d.Model)
	add("serial ", d.Serial)
	add("last ", d.Path)
	add("slot ", d.Slot)
	return strings.Join(words, ", ")
}

// LostDisk is a disk that is gone with its whole volume group.
type LostDisk struct {
	PV        string     `json:"pvUUID"`
	Group     lvm.VGName `json:"volumeGroup"`
	GroupUUID lvm.VGUUID `json:"volumeGroupUUID"`
	Disk
}
