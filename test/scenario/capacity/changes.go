package capacity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// change is something that moves a node's figures, and by how much.
type change struct {
	what  string
	limit time.Duration
	by    func() error
	then  func() error // what to wait for before the next change; may be nil

	extents int64 // free extents more
	volumes int64 // logical volumes more
	lost    int64 // lost disks more
	thin    int64 // bytes more of the thin class; 0 is not checked
}

// happened tells whether LVM shows the change.
func (c change) happened(before, now scenario.GroupState) bool {
	if c.lost != 0 {
		return now.LostDisks == before.LostDisks+c.lost
	}
	if c.volumes != 0 {
		return now.Volumes == before.Volumes+c.volumes
	}
	return now.FreeExtents == before.FreeExtents+c.extents
}

func (f *freshness) follow(ctx context.Context, env *scenario.Environment, changes []change) error {
	for _, c := range changes {
		late, err := follow(ctx, env, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		if c.then != nil {
			if err := c.then(); err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
		}
		f.rows = append(f.rows, []string{c.what, fmt.Sprintf("%.1f s", late.Seconds()), fmt.Sprintf("%.0f s", c.limit.Seconds())})
	}
	return nil
}

// follow makes a change and returns an upper bound of the time until the published capacity shows it. It polls LVM, and the change
// counts from the last poll that did not show it. On a slow node that may be long before the change. The capacity is late
// if it is wrong when the limit has passed since LVM showed the change.
func follow(ctx context.Context, env *scenario.Environment, c change) (late time.Duration, err error) {
	before, err := env.GroupState(ctx, scenario.FirstNode)
	if err != nil {
		return 0, err
	}
	thin, err := env.PublishedCapacity(ctx, scenario.ThinClass, scenario.FirstNode)
	if err != nil {
		return 0, err
	}
	asked := time.Now()
	if err := c.by(); err != nil {
		return 0, err
	}
	since, shown := asked, asked
	for seen := before; ; time.Sleep(100 * time.Millisecond) {
		began := time.Now()
		now, err := env.GroupState(ctx, scenario.FirstNode)
		if err != nil {
			return 0, err
		}
		if now != seen {
			seen, since, shown = now, asked, time.Now()
		}
		asked = began
		wrong := errors.New("LVM does not show it")
		if c.happened(before, now) {
			late = time.Since(shown)
			if wrong = env.CheckPublishedCapacity(ctx, scenario.GrowingClass, scenario.FirstNode, now.Capacity()); wrong == nil && c.thin != 0 {
				wrong = env.CheckPublishedCapacity(ctx, scenario.ThinClass, scenario.FirstNode, thin+c.thin)
			}
			if wrong == nil {
				return time.Since(since), nil
			}
			if late > c.limit {
				return late, fmt.Errorf("%.1f s after LVM showed it: %w", late.Seconds(), wrong)
			}
		}
		if err := ctx.Err(); err != nil {
			return 0, errors.Join(wrong, err)
		}
	}
}
