package bench

import (
	"context"
	"fmt"
	"io"
	"time"
)

// meter takes samples in one stage.
type meter struct {
	*node
	driver  *driver
	volumes int
	out     io.Writer
	silent  bool // while it warms up: no samples
	turn    int  // number of the round: which candidate begins
}

// warmRounds repeats a round count times, after one without samples that only warms up.
func (m *meter) warmRounds(ctx context.Context, what string, count int, round func(ctx context.Context, name string) error) error {
	m.silent = true
	err := round(ctx, "warm")
	m.silent = false
	if err != nil {
		return err
	}
	return m.rounds(ctx, what, count, round)
}

func (m *meter) rounds(ctx context.Context, what string, count int, round func(ctx context.Context, name string) error) error {
	for i := range count {
		m.turn = i
		if err := round(ctx, fmt.Sprintf("r%d", i)); err != nil {
			return err
		}
	}
	m.say("  %s: %d rounds", what, count)
	return nil
}

func (m *meter) note(work string, atOnce int, who string, figures map[string]float64) error {
	if m.silent {
		return nil
	}
	return Sample{Key{work, m.volumes, atOnce, who}, figures}.write(m.out)
}

// task is one piece of work for each of the three candidates; nil if a candidate has no such work.
type task struct {
	work    string
	stock   []string
	tuned   []string
	nodelvm func(ctx context.Context) error
}

// measure lets the three candidates do the task one after the other. Each round begins with another one.
func (m *meter) measure(ctx context.Context, t task) error {
	turns := []func() error{
		func() error { return m.bare(ctx, t.work, Stock, t.stock, m.stock) },
		func() error { return m.bare(ctx, t.work, Tuned, t.tuned, m.tuned) },
		func() error { return m.served(ctx, t.work, t.nodelvm) },
	}
	for i := range turns {
		if err := turns[(i+m.turn)%len(turns)](); err != nil {
			return fmt.Errorf("%s: %w", t.work, err)
		}
	}
	return nil
}

// calm waits until udev has processed the devices of the previous sample. Stock commands wait for udev, the others do not, and
// would slow down the next sample.
func (m *meter) calm(ctx context.Context) error { return m.admin(ctx, "udevadm", "settle") }

// bare takes a sample of a bare command, if argv is not nil.
func (m *meter) bare(ctx context.Context, work, who string, argv []string, make func(...string) command) error {
	if argv == nil {
		return nil
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	took, err := timed(func() error { return m.run(ctx, make(argv...)) })
	if err != nil {
		return err
	}
	return m.note(work, 1, who, map[string]float64{unitTime: float64(took), unitProcesses: 1})
}

// served takes a sample of a call to the driver, if call is not nil, and of the driver's work after its answer.
func (m *meter) served(ctx context.Context, work string, call func(context.Context) error) error {
	if call == nil {
		return nil
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	before, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	took, err := timed(func() error { return call(ctx) })
	if err != nil {
		return err
	}
	answered, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	figures := map[string]float64{unitTime: float64(took), unitProcesses: answered.processes - before.processes}
	if figures[unitProcesses] > 0 {
		figures[unitInLVM] = float64(answered.inLVM - before.inLVM)
		after, err := m.driver.settled(ctx)
		if err != nil {
			return err
		}
		figures[unitLaterLVM] = after.processes - answered.processes
		figures[unitLater] = float64(after.inLVM - answered.inLVM)
	}
	return m.note(work, 1, Nodelvm, figures)
}

// readings is the number of samples of a read-only call in a round: such a call is cheap.
const readings = 5

// read takes several samples of a call that starts no process as a rule, each after a pause. undo follows each.
func (m *meter) read(ctx context.Context, work, who string, pause time.Duration, call, undo func(context.Context) error) error {
	if err := m.calm(ctx); err != nil {
		return err
	}
	before, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	var all []time.Duration
	for range readings {
		time.Sleep(pause)
		took, err := timed(func() error { return call(ctx) })
		if err == nil {
			err = undo(ctx)
		}
		if err != nil {
			return err
		}
		all = append(all, took)
	}
	after, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	for _, took := range all {
		figures := map[string]float64{unitTime: float64(took), unitProcesses: (after.processes - before.processes) / readings}
		if err := m.note(work, 1, who, figures); err != nil {
			return err
		}
	}
	return nil
}
