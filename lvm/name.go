package lvm

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// csiNamePattern is the name that external-provisioner gives to a volume: "pvc-" and the claim's UID. It is a good LV
// name as it stands, and the one that people look for.
var csiNamePattern = regexp.MustCompile(`^pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// LVName derives the logical volume's name from the CO's name for it. It never collides with a name that LVM reserves
// (lvm(8), "VALID NAMES"); any name but the usual one is hashed, since LVM allows less than CSI does.
func LVName(name string) string {
	if csiNamePattern.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "v-" + hex.EncodeToString(sum[:16])
}

// snapshotPrefix begins the names of snapshots, and of nothing else that the driver makes.
const snapshotPrefix = "s-"

// SnapshotName derives the name of a snapshot's logical volume: never that of a volume.
func SnapshotName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return snapshotPrefix + hex.EncodeToString(sum[:16])
}

// IsSnapshot tells a snapshot's handle from a volume's, by the name that the driver gave it.
func (id ID) IsSnapshot() bool { return strings.HasPrefix(id.LV, snapshotPrefix) }

// Device-mapper joins group and volume with a hyphen and doubles the hyphens inside either; the whole is at most 127
// bytes (DM_NAME_LEN), of which LVM wants some for the suffixes of hidden layers.
const (
	DmNameMax      = 127
	dmSuffixRoom   = 20
	lvNameEscaped  = len("pvc-00000000-0000-0000-0000-000000000000") + 5 // the longest that LVName makes
	GroupNameMaxDM = DmNameMax - dmSuffixRoom - lvNameEscaped - 1
)

// GroupNameTooLong tells whether the device name of a volume in the group could pass device-mapper's limit.
func GroupNameTooLong(group string) bool {
	return len(group)+strings.Count(group, "-") > GroupNameMaxDM
}

// ReservedNames are what LVM keeps for itself in names of logical volumes (lvm(8), "VALID NAMES").
var ReservedNames = regexp.MustCompile(`^(snapshot|pvmove)|_(cdata|cmeta|corig|cpool|cvol|iorig|imeta|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata|vorigin|wcorig)`)

// checkPool tells whether LVM could have a thin pool of the name; nothing else ever reaches an argument of a command.
func checkPool(name string) error {
	if !NamePattern.MatchString(name) || name == "." || name == ".." || ReservedNames.MatchString(name) || len(name)+strings.Count(name, "-") > lvNameEscaped {
		return Errorf(KindInvalid, "%q is not the name of a thin pool: give letters, digits and _ + . -, not - in front, at most %d (hyphens count twice), and no name that LVM keeps for itself (lvm(8))", name, lvNameEscaped)
	}
	return nil
}

// tagPattern is LVM's alphabet for tags (lvm(8), "VALID NAMES"); MaxTag is their length.
var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_+.\-/=!:&#]+$`)

// CheckGroup tells whether a class's group is a name or an @tag that LVM could have; nothing else ever reaches an
// argument of a command.
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
