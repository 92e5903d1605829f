package mount

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// labelOptions are the mount options whose value is an SELinux label. Only a kernel with an SELinux policy takes them.
var labelOptions = []string{"context", "fscontext", "defcontext", "rootcontext"}

// labelOf returns an option and its label, as the kubelet or the kernel writes it.
func labelOf(option string) (name, label string, is bool) {
	name, label, _ = strings.Cut(option, "=")
	return name, label, slices.Contains(labelOptions, name)
}

// withoutLabels returns the other mount options.
func withoutLabels(options []string) []string {
	return slices.DeleteFunc(SplitOptions(options), func(option string) bool { _, _, is := labelOf(option); return is })
}

// requireLabels returns an error (lvm.KindConflict) if a file system is mounted without a label among the options, which the kernel has refused.
func requireLabels(target string, options []string, refused error) error {
	mounts, err := mountsWhere(func(m dm.Mount) bool { return m.Point == target })
	if err != nil || len(mounts) == 0 {
		return err
	}
	m := mounts[len(mounts)-1]
	if missing := MissingLabel(options, m.SuperOptions); missing != "" {
		return lvm.Errorf(lvm.KindConflict, "cannot mount %s at %s with the SELinux option %s: the kernel refuses it (%w), and its log or the audit log says why. "+
			"The node's policy must know the label and let the driver mount with it, and the file system may not be mounted elsewhere with another one", m.Source, target, missing, refused)
	}
	return nil
}

// MissingLabel returns the first SELinux option among mount options that a mount lacks, or has with another label; "" if there is none. super
// are the file system's options, as in mountinfo. The kernel shows labels, or "seclabel" for file systems in which each file has its own,
// only while SELinux has a policy; without one, no label is missing.
func MissingLabel(options []string, super string) string {
	shown := map[string]string{}
	for _, option := range SplitOptions([]string{super}) {
		if name, label, is := labelOf(option); is {
			shown[name] = label
		}
	}
	if len(shown) == 0 && !hasOption(super, "seclabel") {
		return ""
	}
	for _, option := range SplitOptions(options) {
		if name, label, is := labelOf(option); is && (shown[name] == "" || differ(label, shown[name])) {
			return option
		}
	}
	return ""
}

// longestLabel is a page, which is what mount(2) takes of all options together.
const longestLabel = 4096

// differ reports whether a requested label and one that the kernel shows, in quotation marks or not, certainly differ. Types are not compared, and
// nor are levels with names: the kernel shows the name for which another one is an alias in the policy.
func differ(a, b string) bool {
	const user, role, level = 0, 1, 3
	if len(a) > longestLabel {
		return true
	}
	x, y := strings.SplitN(strings.Trim(a, `"`), ":", level+1), strings.SplitN(strings.Trim(b, `"`), ":", level+1)
	common := min(len(x), len(y))
	if common <= role || x[user] != y[user] || x[role] != y[role] {
		return true
	}
	if common <= level { // of a policy without levels
		return false
	}
	levelX, numberedX := numberedLevel(x[level])
	levelY, numberedY := numberedLevel(y[level])
	return numberedX && numberedY && levelX != levelY
}

// numberedLevel returns a level in a form that is the same for each way to write it: the kernel sorts the categories and joins neighbours, so
// that "s0:c2,c1,c0" becomes "s0:c0.c2".
func numberedLevel(level string) (normal string, is bool) {
	ends := strings.Split(level, "-") // of a range
	for i, end := range ends {
		sensitivity, categories, some := strings.Cut(end, ":")
		set := new(big.Int)
		if some {
			set = categorySet(categories)
		}
		if _, err := strconv.Atoi(strings.TrimPrefix(sensitivity, "s")); err != nil || set == nil {
			return "", false
		}
		ends[i] = sensitivity + ":" + set.Text(16)
	}
	return strings.Join(slices.Compact(ends), "-"), true
}

// categorySet returns the categories of a level as a bitmap; nil if one has no number that a policy can have.
func categorySet(categories string) *big.Int {
	set := new(big.Int)
	for part := range strings.SplitSeq(categories, ",") {
		low, high, is := strings.Cut(part, ".")
		if !is {
			high = low
		}
		first, err := strconv.ParseUint(strings.TrimPrefix(low, "c"), 10, 16)
		last, err2 := strconv.ParseUint(strings.TrimPrefix(high, "c"), 10, 16)
		if err != nil || err2 != nil {
			return nil
		}
		if first <= last {
			part := new(big.Int).Lsh(big.NewInt(1), uint(last-first+1))
			set.Or(set, part.Lsh(part.Sub(part, big.NewInt(1)), uint(first)))
		}
	}
	return set
}
