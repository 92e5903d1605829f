package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	rateClaim = "rate"
	rateMiB   = 512
	rateGoal  = 0.8
	ratePairs = 5  // steady moves
	rateMoves = 20 // at most, to get so many
	// rateSteady is how many times as long as the raw copy before a move the one after it may take, or the reverse: if it is more, the machine does
	// something else, and the move does not count.
	rateSteady = 1.25
)

// rateNodes are the nodes between which the volume moves.
var rateNodes = [2]string{"node-1", "node-2"}

// MoveRate compares the copy of a volume that moves with a raw copy of the same device through TLS, between the same nodes.
func MoveRate() []scenario.Scenario {
	return []scenario.Scenario{{Title: "The copy of a volume that moves, relative to a raw copy through TLS", Steps: []scenario.Step{
		{Says: "the driver runs with move.enabled and without a limit", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.ApplyChart(ctx, "move.enabled=true")
		}},
		{Says: "a linear volume has 512 MiB without zeroes, and both nodes have a bare logical volume of that size", Prove: rateBegins},
		{Says: "the volume moves to and fro, and before each move a program copies its device", Prove: compareRates, Limit: 20 * time.Minute},
		{Says: "everything is deleted, and the driver is as shipped", Prove: rateEnds},
	}}}
}

func rateBegins(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("together-classes.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.CreateClaim(ctx, rateNodes[0], rateClaim, "together", strconv.Itoa(rateMiB)+"Mi"); err != nil {
		return err
	}
	for _, node := range rateNodes {
		if err := env.RunInGroup(ctx, node, fmt.Sprintf("lvcreate -qq -y -Wn -L %dm -n bare GROUP", rateMiB)); err != nil {
			return err
		}
	}
	var device string
	if err := cluster.Eventually(ctx, func() (err error) {
		device, err = rateDevice(ctx, env, rateNodes[0])
		return err
	}); err != nil {
		return err
	}
	_, err := env.RunOnNode(ctx, rateNodes[0], "dd", "if=/dev/urandom", "of="+device, "bs=1M", fmt.Sprint("count=", rateMiB), "oflag=direct")
	return err
}

func rateEnds(ctx context.Context, env *scenario.Environment) error {
	for _, node := range rateNodes {
		if err := env.RunInGroup(ctx, node, "lvremove -qq -y GROUP/bare"); err != nil {
			return err
		}
	}
	return errors.Join(scenario.DeletePodsAndVolumes(ctx, env), scenario.RestoreDriver(ctx, env))
}

// compareRates measures raw copies and moves alternately, and prints the figures, until enough moves were steady. The first move to each node warms up.
func compareRates(ctx context.Context, env *scenario.Environment) error {
	program, err := compileRawCopy(ctx, env)
	if err != nil {
		return err
	}
	var raws, moves []float64
	for count := 0; ; count++ {
		from, to := count%2, (count+1)%2
		raw, err := copyRaw(ctx, env, program, from, to)
		if err != nil {
			return err
		}
		raws = append(raws, raw)
		if warm := len(rateNodes); count > warm {
			if steady := steadyPairs(raws[warm:], moves[warm:]); len(steady) == ratePairs {
				return judgeRates(env.Reporter.Note, steady)
			} else if count == rateMoves {
				return unsteady(raws[warm:], len(steady))
			}
		}
		move, err := copyByMove(ctx, env, from, to, count/2+1)
		if err != nil {
			return err
		}
		moves = append(moves, move)
		env.Reporter.Note("to %s: raw %.1f s, the move %.1f s", rateNodes[to], raw, move)
	}
}

// ratePair is the seconds of a move, and the mean of the raw copies before and after it.
type ratePair struct{ raw, move float64 }

func (p ratePair) ratio() float64 { return p.raw / p.move }

// steadyPairs returns the moves that count. There is a raw copy before each move, and one after the last.
func steadyPairs(raws, moves []float64) (steady []ratePair) {
	for i := range min(len(moves), len(raws)-1) {
		if before, after := raws[i], raws[i+1]; max(before, after) <= rateSteady*min(before, after) {
			steady = append(steady, ratePair{(before + after) / 2, moves[i]})
		}
	}
	return steady
}

// unsteady is why a run says nothing: it has not passed.
func unsteady(raws []float64, steady int) error {
	return fmt.Errorf("the machine is not steady, and the run says nothing: raw copies before and after a move differ by at most a quarter for %d of %d moves, and %d are needed; raw copies took %.1f s to %.1f s",
		steady, len(raws)-1, ratePairs, slices.Min(raws), slices.Max(raws))
}

// judgeRates prints the figures, and fails if the median is below the goal.
func judgeRates(note func(format string, args ...any), counted []ratePair) error {
	middle := func(of func(ratePair) float64) float64 {
		all := make([]float64, 0, len(counted))
		for _, p := range counted {
			all = append(all, of(p))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	ratio := middle(ratePair.ratio)
	note("medians of the %d steady moves: raw %.0f MiB/s, the move %.0f MiB/s, ratio %.2f", len(counted),
		rateMiB/middle(func(p ratePair) float64 { return p.raw }), rateMiB/middle(func(p ratePair) float64 { return p.move }), ratio)
	if ratio < rateGoal {
		return fmt.Errorf("a move copies at %.2f times the rate of a raw copy; the goal is %.1f", ratio, rateGoal)
	}
	return nil
}

// compileRawCopy puts test/cmd/rawcopy into the nodes' share, with a new name: a node caches the content of an old one.
func compileRawCopy(ctx context.Context, env *scenario.Environment) (inNode string, err error) {
	top, err := cluster.Checkout()
	if err != nil {
		return "", err
	}
	name := "rawcopy-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(env.Lab.Share(), name), "./cmd/rawcopy")
	cmd.Dir, cmd.Env = filepath.Join(top, "test"), append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building rawcopy: %w\n%s", err, said)
	}
	return "/mnt/lab/" + name, nil
}

// inDriversNetwork runs a command in the network namespace of the node's driver: a move goes through the pods' network, too.
const inDriversNetwork = `exec nsenter --net=/proc/$(pidof -s nodelvm)/ns/net "$@"`

// copyRaw copies the volume's device to the bare logical volume of the other node. It returns the seconds from the connection to the flush.
func copyRaw(ctx context.Context, env *scenario.Environment, program string, from, to int) (seconds float64, err error) {
	source, err := rateDevice(ctx, env, rateNodes[from])
	if err != nil {
		return 0, err
	}
	target, err := deviceOf(ctx, env, rateNodes[to], "bare")
	if err != nil {
		return 0, err
	}
	pod, err := env.DriverPodOn(ctx, rateNodes[from])
	if err != nil {
		return 0, err
	}
	address := net.JoinHostPort(pod.Status.PodIP, "7000")
	sent := make(chan error, 1)
	go func() {
		_, err := env.RunOnNode(ctx, rateNodes[from], "sh", "-c", inDriversNetwork, "sh", program, "send", source, address)
		sent <- err
	}()
	if err := cluster.UnlessEnded(ctx, sent, "the program that sends", func() error {
		out, err := env.RunOnNode(ctx, rateNodes[to], "sh", "-c", inDriversNetwork, "sh", program, "receive", target, address)
		if err == nil {
			seconds, err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		}
		return err
	}); err != nil {
		return 0, err
	}
	return seconds, <-sent
}

// copyByMove moves the volume, which is the count-th move to that node, and deletes the former copy. It returns the seconds that the driver's log has for the copy.
func copyByMove(ctx context.Context, env *scenario.Environment, from, to, count int) (float64, error) {
	annotate := func(key string, node int) error {
		_, err := env.Kubectl(ctx, "", "annotate", "pvc", rateClaim, "-n", cluster.Namespace, "--overwrite", key+"="+rateNodes[node])
		return err
	}
	if err := annotate(api.AnnotationMoveTo, to); err != nil {
		return 0, err
	}
	if err := awaitNode(ctx, env, rateNodes[to]); err != nil {
		return 0, err
	}
	if err := annotate(api.AnnotationMoveFinish, from); err != nil {
		return 0, err
	}
	if err := cluster.Eventually(ctx, func() error {
		rows, err := env.LogicalVolumes(ctx, rateNodes[from])
		if err == nil && len(rows) != 1 {
			err = fmt.Errorf("%s has other logical volumes than the bare one: %v", rateNodes[from], rows)
		}
		return err
	}); err != nil {
		return 0, err
	}
	return loggedCopy(ctx, env, rateNodes[to], count)
}

// awaitNode waits until the volume is on a node. It asks nothing while the volume is copied: a node has one processor, and commands on it would take a
// sixth of that from the copy.
func awaitNode(ctx context.Context, env *scenario.Environment, node string) error {
	const selected = `jsonpath={.metadata.annotations.volume\.kubernetes\.io/selected-node}=`
	if _, err := env.Kubectl(ctx, "", "wait", "pvc/"+rateClaim, "-n", cluster.Namespace, "--timeout=10m", "--for="+selected+node); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		_, err := rateDevice(ctx, env, node)
		return err
	})
}

// loggedCopy returns how many seconds the last one of so many copies to a node took.
func loggedCopy(ctx context.Context, env *scenario.Environment, node string, count int) (float64, error) {
	pod, err := env.DriverPodOn(ctx, node)
	if err != nil {
		return 0, err
	}
	text, err := env.Kubectl(ctx, "", "logs", "-n", cluster.DriverNamespace, pod.Name, "-c", "nodelvm")
	if err != nil {
		return 0, err
	}
	found, last := 0, struct{ Bytes, Took float64 }{}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"msg":"copied a volume to this node"`) {
			found, err = found+1, json.Unmarshal([]byte(line), &last)
		}
	}
	if err != nil || found != count || last.Bytes != rateMiB<<20 || last.Took <= 0 {
		return 0, fmt.Errorf("the driver's log on %s has %d copies, not %d; the last one: %+v: %w", node, found, count, last, err)
	}
	return last.Took, nil
}

// rateDevice returns the device of the claim's volume, which must be on this node.
func rateDevice(ctx context.Context, env *scenario.Environment, node string) (string, error) {
	v, err := env.VolumeOf(ctx, rateClaim)
	if err == nil && v.Node != node {
		err = fmt.Errorf("the volume is on %s, not on %s", v.Node, node)
	}
	if err != nil {
		return "", err
	}
	return deviceOf(ctx, env, node, v.Lv)
}

func deviceOf(ctx context.Context, env *scenario.Environment, node, lv string) (string, error) {
	out, err := env.RunOnNode(ctx, node, "lvs", "--noheadings", "-o", "lv_kernel_minor", "-S", "lv_name="+lv)
	if err != nil {
		return "", err
	}
	minor, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 20)
	return fmt.Sprintf("/dev/dm-%d", minor), err
}
