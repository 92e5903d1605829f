package lvmtest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// line is a parsed command line.
type line struct {
	values     map[string]string // by option; "" for a short one without a value, such as -y
	add, del   []string          // tags
	positional []string
}

// options lists the options that each command accepts here: those of the driver and of the tests' admin. A one-letter option
// has its value attached (-ay) or after it (-l 4), as the driver writes it.
var options = map[string][]string{
	"lvcreate": {"-A", "-y", "--devices", "-a", "-W", "-Z", "-l", "-n", "-i", "-I", "-m", "-c", "-V", "-s", "-k", "-p", "--alloc", "--type", "--addtag",
		"--regionsize", "--poolmetadatasize", "--discards", "--thinpool", "--nosync"},
	"lvextend": {"-y", "--devices", "-l", "--alloc", "--config"},
	"lvchange": {"-y", "--devices", "-S", "-a", "-K", "-k", "-p", "--refresh", "--addtag", "--deltag", "--errorwhenfull"},
	"lvremove": {"-y", "--devices", "-S", "-ff"},
	"vgchange": {"-y", "--devices", "--addtag"},
}

var (
	attached = []string{"-A", "-a", "-W", "-Z", "-k", "-p"}
	bare     = []string{"-y", "-s", "-K", "-ff", "--refresh", "--nosync"}
	tagWord  = regexp.MustCompile(`^[A-Za-z0-9_+.\-/=!:&#]+$`)
	nameWord = regexp.MustCompile(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]*$`)
)

// parse parses what follows a command's name, as strictly as lvm: an unknown option is an error.
func parse(command string, args []string) (line, error) {
	l := line{values: map[string]string{}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			l.positional = append(l.positional, args...)
			break
		}
		if !strings.HasPrefix(arg, "-") {
			l.positional = append(l.positional, arg)
			continue
		}
		option, value := arg, ""
		if len(arg) > 2 && slices.Contains(attached, arg[:2]) {
			option, value = arg[:2], arg[2:]
		} else if !slices.Contains(bare, arg) {
			if len(args) == 0 {
				return l, fmt.Errorf("%s: option is unknown or requires an argument", arg)
			}
			value, args = args[0], args[1:]
		}
		if err := l.setOption(command, option, value); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *line) setOption(command, option, value string) error {
	_, twice := l.values[option]
	switch {
	case !slices.Contains(options[command], option):
		return fmt.Errorf("%s: unrecognised option %s", command, option)
	case option == "--addtag" || option == "--deltag":
		if len(value) > 1024 || !tagWord.MatchString(value) || value[0] == '-' {
			return fmt.Errorf("%s: invalid tag %q", command, value)
		}
		if option == "--addtag" {
			l.add = append(l.add, value)
		} else {
			l.del = append(l.del, value)
		}
		return nil
	case twice && option != "-y":
		return fmt.Errorf("%s: %s is repeated", command, option)
	}
	l.values[option] = value
	return nil
}

func (l line) has(option string) bool {
	_, ok := l.values[option]
	return ok
}

// count parses an option that is a whole number of 1 or more; without the option it returns or.
func (l line) count(option string, or int64) (int64, error) {
	text, ok := l.values[option]
	if !ok {
		return or, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("invalid argument for %s: %q", option, text)
	}
	return n, nil
}

// size parses an option that is a size with LVM's unit: b, s (sectors), k, m, g, t; MiB without one.
func (l line) size(option string, or lvm.Bytes) (lvm.Bytes, error) {
	text, ok := l.values[option]
	if !ok {
		return or, nil
	}
	unit := lvm.MiB
	if text != "" {
		units := map[byte]lvm.Bytes{'b': 1, 's': 512, 'k': lvm.KiB, 'm': lvm.MiB, 'g': lvm.GiB, 't': lvm.TiB}
		if u, known := units[text[len(text)-1]|0x20]; known {
			unit, text = u, text[:len(text)-1]
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("invalid size for %s: %q", option, l.values[option])
	}
	return lvm.Bytes(n) * unit, nil
}

// span is an extent range that a command may use.
type span struct {
	pv string // UUID
	lvm.Run
}

// spans parses the disks and ranges after a group's name: PV:first-last:first-last. If a disk is named twice, only the first
// counts; without any, the command may use the whole group.
func (g *group) spans(args []string) ([]span, *failure) {
	var all []span
	var seen []string
	if len(args) == 0 {
		for _, pv := range g.PVs {
			args = append(args, fmt.Sprintf("%s:0-%d", pv.Device, pv.Extents-1))
		}
	}
	for _, arg := range args {
		device, ranges, _ := strings.Cut(arg, ":")
		i := slices.IndexFunc(g.PVs, func(pv lvm.PV) bool { return pv.Device == device })
		if i < 0 || !g.PVs[i].Allocatable {
			return nil, failed("Physical Volume %q not found in Volume Group %q.", device, g.Name)
		}
		if slices.Contains(seen, device) {
			continue
		}
		seen = append(seen, device)
		if ranges == "" {
			ranges = fmt.Sprintf("0-%d", g.PVs[i].Extents-1)
		}
		for r := range strings.SplitSeq(ranges, ":") {
			var first, last lvm.Extents
			if n, err := fmt.Sscanf(r, "%d-%d", &first, &last); err != nil || n != 2 || last < first || last >= g.PVs[i].Extents {
				return nil, failed("Physical extent parsing error at %s", arg)
			}
			all = append(all, span{g.PVs[i].UUID, lvm.Run{Start: first, Count: last - first + 1}})
		}
	}
	return all, nil
}
