package lvmtest

import (
	"context"
	"fmt"
	"regexp"
	"slices"
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
