package lvm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// csiNamePattern matches external-provisioner's name of a volume: "pvc-" and the claim's UID. It is a valid LV name, so an
// admin finds the same name in LVM and Kubernetes.
var csiNamePattern = regexp.MustCompile(`^pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// LVName derives the logical volume's name from CSI's name of the volume. It never returns a name that LVM reserves (lvm(8),
// "VALID NAMES"). It hashes all names except external-provisioner's, because LVM allows fewer names than CSI.
func LVName(name string) string {
	if csiNamePattern.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "v-" + hex.EncodeToString(sum[:16])
}

// snapshotPrefix begins the names of snapshots only.
const snapshotPrefix = "s-"

// SnapshotName derives the name of a snapshot's logical volume. It differs from the name of any volume.
func SnapshotName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return snapshotPrefix + hex.EncodeToString(sum[:16])
}

// IsSnapshot reports whether the handle is a snapshot's, by the name's prefix.
func (id ID) IsSnapshot() bool { return strings.HasPrefix(id.LV, snapshotPrefix) }

// Device-mapper joins the names of group and volume with a hyphen, and doubles the hyphens in both. A name has at most 127
// bytes (DM_NAME_LEN), of which LVM needs some for the suffixes of hidden layers.
const (
	DmNameMax      = 127
	dmSuffixRoom   = 20
	lvNameEscaped  = len("pvc-00000000-0000-0000-0000-000000000000") + 5 // the longest result of LVName
	GroupNameMaxDM = DmNameMax - dmSuffixRoom - lvNameEscaped - 1
)

// GroupNameTooLong reports whether the device name of a volume in the group could exceed device-mapper's limit.
func GroupNameTooLong(group VGName) bool {
	return len(group)+strings.Count(string(group), "-") > GroupNameMaxDM
}

// ReservedNames matches the names of logical volumes that LVM reserves (lvm(8), "VALID NAMES").
var ReservedNames = regexp.MustCompile(`^(snapshot|pvmove)|_(cdata|cmeta|corig|cpool|cvol|iorig|imeta|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata|vorigin|wcorig)`)

// checkPool accepts only names that LVM allows for a thin pool: the name becomes a command's argument.
func checkPool(name string) error {
	if !NamePattern.MatchString(name) || name == "." || name == ".." || ReservedNames.MatchString(name) || len(name)+strings.Count(name, "-") > lvNameEscaped {
		return Errorf(KindInvalid, "%q is not the name of a thin pool: give letters, digits and _ + . -, not - in front, at most %d (hyphens count twice), and no name that LVM keeps for itself (lvm(8))", name, lvNameEscaped)
	}
	return nil
}

// tagPattern is LVM's alphabet for tags (lvm(8), "VALID NAMES"); MaxTag is their length.
var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_+.\-/=!:&#]+$`)

// CheckGroup accepts only a volume group name or @tag that LVM allows: it becomes a command's argument.
func CheckGroup(group string) error {
	if tag, isTag := strings.CutPrefix(group, "@"); isTag {
		if len(tag) > MaxTag || !tagPattern.MatchString(tag) || tag[0] == '-' {
			return Errorf(KindInvalid, "%q is not a volume group tag: after the @, use letters, digits and _ + . - / = ! : & #", group)
		}
		return nil
	}
	if len(group) > 127 || !NamePattern.MatchString(group) || group == "." || group == ".." {
		return Errorf(KindInvalid, "%q is not a volume group: give a group's name (letters, digits and _ + . -, not - in front), or @tag", group)
	}
	return nil
}

// ID identifies one volume: the volume group's UUID and the logical volume's name. Its text form, the CSI volume handle, is
// `<vg uuid>/<lv name>`, at most 128 bytes (CSI spec, "Size Limits").
type ID struct {
	VG VGUUID
	LV string
}

var (
	uuidPattern = regexp.MustCompile(`^[A-Za-z0-9]{6}(-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$`)
	NamePattern = regexp.MustCompile(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$`)
)

// ParseID parses a volume handle. KindInvalid: this driver never returned such a handle.
func ParseID(handle string) (ID, error) {
	vg, lv, ok := strings.Cut(handle, "/")
	if !ok || len(handle) > 128 || !uuidPattern.MatchString(vg) || !NamePattern.MatchString(lv) {
		return ID{}, Errorf(KindInvalid, "%q is not a volume handle of this driver (<volume group UUID>/<logical volume>)", handle)
	}
	return ID{VG: VGUUID(vg), LV: lv}, nil
}

func (id ID) String() string { return string(id.VG) + "/" + id.LV }

// Compare orders as strings.Compare does, and builds no strings.
func (id ID) Compare(other ID) int {
	return cmp.Or(strings.Compare(string(id.VG), string(other.VG)), strings.Compare(id.LV, other.LV))
}

// Description describes the source of a volume for messages.
func (id ID) Description() string {
	switch {
	case id == ID{}:
		return "an empty volume"
	case id.IsSnapshot():
		return "a copy of the snapshot " + id.LV
	}
	return "a copy of the volume " + id.LV
}

// handleName returns the name in the handle of a volume or snapshot.
func handleName(lv LV, values map[string]string) string {
	switch name := values[keyName]; {
	case values[keyLV] != "":
		return values[keyLV]
	case values[keyKind] == kindSnapshot && name != lv.Name: // FlushArgs creates one with that name
		return SnapshotName(name)
	case csiNamePattern.MatchString(name):
		return name
	default:
		return lv.Name
	}
}
