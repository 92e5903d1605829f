package controller

import (
	"slices"
	"strings"
)

// riskyMounts and riskyFeatures give up the order in which a file system writes data and the metadata that points to it.
var (
	riskyMounts   = []string{"data=writeback", "nobarrier", "barrier=0"}
	riskyFeatures = []string{"^has_journal", "^extent"}
)

// showsUnwritten reports whether a volume's user may see blocks that nothing wrote since the volume's creation. A raw device
// shows all of them. A file system shows those of a file whose data was lost in a power cut, and only with these options.
func showsUnwritten(u usage, mkfs string) bool {
	risky := func(option string) bool { return slices.Contains(riskyMounts, option) }
	if u.raw || slices.ContainsFunc(strings.Split(strings.Join(u.options, ","), ","), risky) {
		return true
	}
	options := strings.FieldsFunc(mkfs, func(r rune) bool { return r == ' ' || r == ',' })
	return slices.ContainsFunc(options, func(option string) bool { return slices.Contains(riskyFeatures, option) })
}
