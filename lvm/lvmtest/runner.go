package lvmtest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Exit statuses of lvm(8).
const (
	exitArguments = 3
	exitFailed    = 5
)

// runner is the fake lvm command.
type runner struct {
	node    *Node
	observe func(lvm.Command)
}

// failure is an exit status and what lvm says to it.
type failure struct {
	code  int
	words string
}

func failed(format string, args ...any) *failure {
	return &failure{exitFailed, fmt.Sprintf(format, args...)}
}

func (r runner) Run(ctx context.Context, argv []string) ([]byte, error) {
	report, f := r.node.run(argv)
	done := lvm.Command{Name: argv[0], Args: argv[1:]}
	if f != nil {
		done.ExitCode = f.code
	}
	r.node.mu.Lock()
	r.node.commands = append(r.node.commands, done)
	r.node.mu.Unlock()
	if r.observe != nil {
		r.observe(done)
	}
	if f != nil {
		return nil, &lvm.ExitError{Argv: argv, Code: f.code, Stderr: f.words}
	}
	return report, nil
}

// run runs one command, with the fault if it is its turn.
func (n *Node) run(argv []string) ([]byte, *failure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var fault *Fault
	if n.fault != nil && n.fault.Call == n.calls {
		fault, n.fault = n.fault, nil
	}
	n.calls++
	if fault != nil && !fault.Late {
		return nil, fault.failure()
	}
	if n.Before != nil {
		n.Before(argv)
	}
	report, f := n.dispatch(argv)
	if fault != nil && f == nil {
		return nil, fault.failure()
	}
	return report, f
}

func (f *Fault) failure() *failure {
	if f.Killed {
		return &failure{-1, "signal: killed"}
	}
	return failed("a fault of the test")
}

func (n *Node) dispatch(argv []string) ([]byte, *failure) {
	if argv[0] == "fullreport" {
		return n.fullreport(), nil
	}
	c, err := parse(argv[1:])
	if err != nil {
		return nil, &failure{exitArguments, err.Error()}
	}
	switch argv[0] {
	case "lvcreate":
		return nil, n.lvcreate(c)
	case "lvchange":
		return nil, n.onVolume(c, (*Node).lvchange)
	case "lvremove":
		return nil, n.onVolume(c, (*Node).lvremove)
	default:
		return nil, &failure{2, "No such command '" + argv[0] + "'."}
	}
}

// line is a parsed command line.
type line struct {
	flags      map[string]bool
	values     map[string]string
	add, del   []string
	positional []string
}

var (
	plainFlags = []string{"-y", "-ay", "-an", "-Wy", "-Zy", "-Wn", "-Zn", "--refresh"}
	valueFlags = []string{"--devices", "-l", "-n", "-S", "--alloc"}
	tagWord    = regexp.MustCompile(`^[A-Za-z0-9_+.\-/=!:&#]+$`)
)

func parse(args []string) (line, error) {
	l := line{flags: map[string]bool{}, values: map[string]string{}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			l.positional = append(l.positional, args...)
			return l, nil
		case slices.Contains(plainFlags, arg):
			l.flags[arg] = true
			continue
		case !strings.HasPrefix(arg, "-"):
			l.positional = append(l.positional, arg)
			continue
		case len(args) == 0:
			return l, fmt.Errorf("%s: option requires an argument, or is not known", arg)
		case slices.Contains(valueFlags, arg):
			l.values[arg] = args[0]
		case (arg == "--addtag" || arg == "--deltag") && tagWord.MatchString(args[0]):
			if arg == "--addtag" {
				l.add = append(l.add, args[0])
			} else {
				l.del = append(l.del, args[0])
			}
		default:
			return l, fmt.Errorf("unrecognised option %q %q", arg, args[0])
		}
		args = args[1:]
	}
	return l, nil
}

// visible finds a group on the disks that the command may look at.
func (n *Node) visible(name string, l line) (*group, *failure) {
	g := n.group(name)
	if g == nil {
		return nil, failed("Volume group %q not found", name)
	}
	devices := strings.Split(l.values["--devices"], ",")
	for _, pv := range g.PVs {
		if pv.Missing || !slices.Contains(devices, pv.Device) {
			return nil, failed("Cannot process volume group %s with missing PVs.", name)
		}
	}
	if g.Problem != "" {
		return nil, failed("Volume group %s cannot be changed: %s", name, g.Problem)
	}
	return g, nil
}

func (n *Node) lvcreate(l line) *failure {
	if len(l.positional) == 0 || !l.flags["-y"] || l.flags["-Wy"] && !l.flags["-Zy"] {
		return &failure{exitArguments, "lvcreate: wrong arguments"}
	}
	g, f := n.visible(l.positional[0], l)
	if f != nil {
		return f
	}
	name := l.values["-n"]
	extents, err := strconv.Atoi(l.values["-l"])
	if err != nil || extents <= 0 || name == "" {
		return &failure{exitArguments, "lvcreate: wrong size or name"}
	}
	if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name }) {
		return failed("Logical Volume %q already exists in volume group %q", name, g.Name)
	}
	uuid := n.uuid()
	segments, f := g.allocate(uuid, lvm.Extents(extents), l.positional[1:])
	if f != nil {
		return f
	}
	g.segments = append(g.segments, segments...)
	g.LVs = append(g.LVs, lvm.LV{UUID: uuid, Name: name, Tags: l.add, Extents: lvm.Extents(extents), Type: "linear"})
	g.commit(-textOf(l.add))
	if !l.flags["-an"] {
		n.activate(g, uuid)
	}
	return nil
}

// textOf is what one volume takes of the metadata area, about.
func textOf(tags []string) lvm.Bytes { return lvm.Bytes(320 + len(strings.Join(tags, ","))) }

func (g *group) commit(mda lvm.Bytes) {
	g.Seqno++
	g.MDAFree += mda
}

// allocate takes extents for a linear volume: all of them from the named ranges, only free ones.
func (g *group) allocate(lv string, extents lvm.Extents, ranges []string) ([]segment, *failure) {
	var segments []segment
	for _, r := range ranges {
		device, spans, _ := strings.Cut(r, ":")
		i := slices.IndexFunc(g.PVs, func(pv lvm.PV) bool { return pv.Device == device })
		if i < 0 || !g.PVs[i].Allocatable {
			return nil, failed("Physical Volume %q not found in Volume Group %q.", device, g.Name)
		}
		free := g.free(g.PVs[i])
		for span := range strings.SplitSeq(spans, ":") {
			var first, last lvm.Extents
			if _, err := fmt.Sscanf(span, "%d-%d", &first, &last); err != nil || last < first {
				return nil, &failure{exitArguments, "Physical extent parsing error at " + r}
			}
			inside := slices.ContainsFunc(free, func(r lvm.Run) bool { return first >= r.Start && last < r.Start+r.Count })
			if inside && extents > 0 {
				count := min(last-first+1, extents)
				segments = append(segments, segment{lv: lv, pv: g.PVs[i].UUID, Run: lvm.Run{Start: first, Count: count}})
				extents -= count
			}
		}
	}
	if extents > 0 {
		return nil, failed("Insufficient free space: %d more extents needed", extents)
	}
	return segments, nil
}

// guardWords is the one form of a selection that the driver uses.
var guardWords = regexp.MustCompile(`^lv_uuid=([A-Za-z0-9-]+) && lv_tags=\{([^{}]+)\}$`)

// onVolume finds the one volume that a command names, and does nothing if it is not the selected one.
func (n *Node) onVolume(l line, do func(*Node, *group, int, line) *failure) *failure {
	if len(l.positional) != 1 {
		return &failure{exitArguments, "exactly one volume is to be named"}
	}
	vg, name, ok := strings.Cut(l.positional[0], "/")
	if !ok || name == "" {
		return &failure{exitArguments, "this fake never works on a whole group"}
	}
	g, f := n.visible(vg, l)
	if f != nil {
		return f
	}
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
	if i < 0 {
		return failed("Failed to find logical volume %q", l.positional[0])
	}
	if selection := l.values["-S"]; selection != "" {
		want := guardWords.FindStringSubmatch(selection)
		if want == nil {
			return &failure{exitArguments, "Selection syntax error"}
		}
		if g.LVs[i].UUID != want[1] || !slices.Contains(g.LVs[i].Tags, want[2]) {
			return nil
		}
	}
	return do(n, g, i, l)
}

func (n *Node) lvchange(g *group, i int, l line) *failure {
	lv := &g.LVs[i]
	if len(l.add)+len(l.del) > 0 {
		tags := slices.DeleteFunc(slices.Clone(lv.Tags), func(t string) bool { return slices.Contains(l.del, t) })
		for _, t := range l.add {
			if !slices.Contains(tags, t) {
				tags = append(tags, t)
			}
		}
		change := textOf(lv.Tags) - textOf(tags)
		lv.Tags = tags
		g.commit(change)
	}
	switch d := n.device(n.path(g, lv.UUID)); {
	case l.flags["--refresh"] && d != nil:
		d.suspended = false
	case l.flags["-ay"]:
		n.activate(g, lv.UUID)
	case l.flags["-an"] && d != nil:
		return n.deactivate(g, lv.UUID)
	}
	return nil
}

func (n *Node) lvremove(g *group, i int, l line) *failure {
	lv := g.LVs[i]
	if !l.flags["-y"] {
		return &failure{exitFailed, "Do you really want to remove? [y/n]: [n]"}
	}
	if f := n.deactivate(g, lv.UUID); f != nil {
		return f
	}
	g.segments = slices.DeleteFunc(g.segments, func(s segment) bool { return s.lv == lv.UUID })
	g.LVs = slices.Delete(g.LVs, i, i+1)
	g.commit(textOf(lv.Tags))
	return nil
}

func (n *Node) activate(g *group, lv string) {
	if n.path(g, lv) != "" {
		return
	}
	n.serial++
	n.devices = append(n.devices, &device{Device: lvm.Device{UUID: deviceUUID(g.UUID, lv), Path: fmt.Sprintf("/dev/dm-%d", n.serial)}})
}

func (n *Node) deactivate(g *group, lv string) *failure {
	path := n.path(g, lv)
	if path == "" {
		return nil
	}
	if n.device(path).opens > 0 {
		return failed("Logical volume %s/%s in use.", g.Name, lv)
	}
	n.devices = slices.DeleteFunc(n.devices, func(d *device) bool { return d.Path == path })
	return nil
}

// path finds the device of a volume; "" if it is not active.
func (n *Node) path(g *group, lv string) string {
	for _, d := range n.devices {
		if d.UUID == deviceUUID(g.UUID, lv) {
			return d.Path
		}
	}
	return ""
}

func deviceUUID(vg, lv string) string {
	return "LVM-" + strings.ReplaceAll(vg, "-", "") + strings.ReplaceAll(lv, "-", "")
}
