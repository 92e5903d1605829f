package luks

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Volume is an encrypted volume; see NewVolume.
type Volume struct {
	Handle string
	UUID   string // of the logical volume
	Device string // of the logical volume, "/dev/dm-3"
	Moved  bool   // from another node
	Copied bool   // its content began as that of another volume: a clone, a restored snapshot, or a volume that has moved here
	Block  bool   // raw
	Thin   bool   // in a thin pool

	name       string // of its mapping, from the handle
	headerUUID string // in its header, from the logical volume's UUID
}

// Observation is a volume's state. The driver reads it at once, and starts no process for it.
type Observation struct {
	Number  uint64    // the logical volume's dev_t
	Size    lvm.Bytes // of the logical volume
	Logical int       // its logical sector, in bytes
	Header  Header
	Mark    Mark
	Other   bool // the format mark is there, and may name another logical volume
	Mapping Mapping
	Holders []string // other devices on the logical volume, by their names
}

// Step is one change. After a crash before, during or after it, the next plan continues from the state on the disk.
type Step int

const (
	StepNothing       Step = iota // The volume is open, and its mapping covers the device.
	StepWriteMark                 // Prove that the device is blank, and write the format mark.
	StepTakeMark                  // Of a volume that moved in a format: the format mark gets its name.
	StepFormat                    // luksFormat, under the mark.
	StepSetUUID                   // Of a copy.
	StepOpen                      // Create the mapping.
	StepClearMapping              // Zero the places of superblocks.
	StepRemoveMark                // The format is complete: MarkFormatted replaces the format mark.
	StepResize                    // Of the mapping.
	StepRemoveMapping             // A mapping without a table, or of an interrupted format.
)

var stepNames = map[Step]string{
	StepNothing: "nothing", StepWriteMark: "write mark", StepTakeMark: "take mark", StepFormat: "format", StepSetUUID: "set UUID", StepOpen: "open",
	StepClearMapping: "clear mapping", StepRemoveMark: "remove mark", StepResize: "resize", StepRemoveMapping: "remove mapping",
}

func (s Step) String() string { return stepNames[s] }

// progress is the part of a format that this call of Stage has done: only the process that formatted knows that cryptsetup
// succeeded.
type progress struct{ formatted, cleared bool }

// plan decides the next step of Stage. It returns StepWriteMark only for a device without a header, which Stage must then prove
// blank, and StepFormat only under the mark: no other state of a header leads to a format.
func plan(v Volume, o Observation, p progress) (Step, error) {
	if o.Mark == MarkErased {
		return 0, lvm.Errorf(lvm.KindConflict, "the keys of volume %s were destroyed with its deletion, so its data cannot be decrypted: delete its claim", v.Handle)
	}
	if o.Size < lvm.LUKSHeaderSize+lvm.LUKSMinDataSize {
		return 0, lvm.Errorf(lvm.KindInvalid, "logical volume %s has %s, and an encrypted one needs at least %s: it was not created for encryption", v.Device, o.Size, lvm.LUKSHeaderSize+lvm.LUKSMinDataSize)
	}
	if o.Mapping.Exists && !o.Mapping.Live {
		return StepRemoveMapping, nil
	}
	if err := checkMapping(v, o); err != nil {
		return 0, err
	}
	switch {
	case o.Mark == MarkFormatting:
		return planFormat(v, o, p)
	case v.Moved && o.Other && o.Mark == MarkNone && !o.Mapping.Live:
		return StepTakeMark, nil // on its former node the format had not ended; nothing but the driver writes below a mapping
	}
	return planFormatted(v, o)
}

// checkMapping refuses a mapping with the volume's name that is another device, and other devices on the logical volume.
func checkMapping(v Volume, o Observation) error {
	m := o.Mapping
	if len(o.Holders) > 0 {
		return lvm.Errorf(lvm.KindInUse, "volume %s (%s) is held open by another device, %s: close it with cryptsetup close or dmsetup remove", v.Handle, v.Device, strings.Join(o.Holders, ", "))
	}
	if !m.Exists {
		return nil
	}
	var is string
	switch {
	case m.Table.Target != "crypt" || !strings.HasPrefix(m.UUID, "CRYPT-LUKS2-"):
		is = "is no LUKS2 mapping"
	case m.Table.Device != dm.FormatNumber(o.Number):
		is = fmt.Sprintf("is on device %s instead of %s", m.Table.Device, dm.FormatNumber(o.Number))
	case m.Table.Offset != lvm.LUKSHeaderSize:
		is = fmt.Sprintf("begins at byte %d instead of %d", int64(m.Table.Offset), int64(lvm.LUKSHeaderSize))
	case m.UUID != mappingUUID(v.headerUUID, v.name):
		is = "belongs to another header (" + m.UUID + ")"
	case m.Suspended:
		return lvm.Errorf(lvm.KindInUse, "the mapping %s of volume %s is suspended: continue it with dmsetup resume, or, if its key was wiped, with cryptsetup luksResume", v.name, v.Handle)
	default:
		return nil
	}
	return lvm.Errorf(lvm.KindConflict, "device-mapper device %s is in the place of volume %s, but %s: find what uses it (dmsetup ls --tree), and remove it (dmsetup remove %s)", v.name, v.Handle, is, v.name)
}

// planFormat continues a format. It repeats the format of an earlier process.
func planFormat(v Volume, o Observation, p progress) (Step, error) {
	switch {
	case !p.formatted && o.Mapping.Live:
		return StepRemoveMapping, nil
	case !p.formatted:
		return StepFormat, nil
	case o.Header.State != HeaderValid || o.Header.UUID != v.headerUUID:
		return 0, lvm.Errorf(lvm.KindInternal, "cryptsetup luksFormat succeeded on %s, and its header is not as expected: %s; the driver formats it again", v.Device, o.Header.describe())
	case !o.Mapping.Live:
		return StepOpen, nil
	case !p.cleared:
		return StepClearMapping, nil
	}
	return StepRemoveMark, nil
}

// planFormatted decides for a volume that is not being formatted.
func planFormatted(v Volume, o Observation) (Step, error) {
	header := o.Header
	switch {
	case header.State == HeaderNone && o.Mark == MarkNone && !o.Mapping.Live:
		return StepWriteMark, nil
	case header.State != HeaderValid:
		return 0, refuseHeader(v, o)
	case header.UUID != v.headerUUID && !v.Copied:
		return 0, lvm.Errorf(lvm.KindConflict, "the LUKS header on %s has the UUID %s, and that of volume %s is %s: it is another volume's, so the driver does not open it", v.Device, header.UUID, v.Handle, v.headerUUID)
	case header.UUID != v.headerUUID:
		return StepSetUUID, nil
	case !o.Mapping.Live:
		return StepOpen, nil
	}
	return planSize(v, o)
}

// planSize compares whole units of encryption.
func planSize(v Volume, o Observation) (Step, error) {
	most := o.Size - lvm.LUKSHeaderSize
	most -= most % lvm.Bytes(o.Header.Sector)
	switch {
	case o.Mapping.Size < most:
		return StepResize, nil
	case o.Mapping.Size > most:
		return 0, lvm.Errorf(lvm.KindConflict, "the mapping of volume %s has %s, more than the %s of data that its logical volume %s can hold", v.Handle, o.Mapping.Size, most, v.Device)
	}
	return StepNothing, nil
}

// refuseHeader returns an error that says why the driver does not open a header, and what an admin can do.
func refuseHeader(v Volume, o Observation) error {
	what := fmt.Sprintf("cannot open volume %s: the LUKS header on %s %s", v.Handle, v.Device, o.Header.describe())
	switch {
	case o.Mapping.Live:
		return lvm.Errorf(lvm.KindConflict, "%s. The volume is open now: copy its data before its pods end, because the driver cannot open it again", what)
	case o.Header.State == HeaderNoKeys:
		return lvm.Errorf(lvm.KindConflict, "%s: without a backup of the header (cryptsetup luksHeaderRestore) its data are lost; the driver does not format it again", what)
	case o.Header.State == HeaderForeign:
		return lvm.Errorf(lvm.KindConflict, "%s; the driver changed nothing. If the header is damaged, restore it from a backup (cryptsetup luksHeaderRestore)", what)
	}
	return lvm.Errorf(lvm.KindConflict, "%s: restore it from a backup (cryptsetup luksHeaderRestore), or try cryptsetup repair; the driver does not format it again", what)
}

func (h Header) describe() string {
	switch h.State {
	case HeaderNone:
		return "is missing"
	case HeaderNoKeys:
		return "has no key slot: they were erased"
	case HeaderDamaged:
		return "is damaged (" + h.Reason + ")"
	case HeaderForeign:
		return "is not one that this driver writes (" + h.Reason + ")"
	case HeaderValid:
		return "is valid (UUID " + h.UUID + ")"
	}
	return fmt.Sprintf("HeaderState(%d)", int(h.State))
}
