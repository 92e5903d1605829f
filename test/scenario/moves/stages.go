package moves

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// stage is a part of a move.
type stage struct {
	name   string
	begins func(*journey, context.Context, *scenario.Environment) error // begins it, or waits for it
	serves string                                                       // the side on which the database serves
	lasts  time.Duration                                                // 0: until the next one begins without a power cut
}

// stages are those of a move, in their order.
var stages = []stage{
	{name: "after the request", begins: (*journey).ask, serves: onSource},
	{name: "in the first round", begins: (*journey).firstRound, serves: onSource},
	{name: "in later rounds", begins: (*journey).laterRounds, serves: onSource, lasts: 5 * time.Second}, // the second begins at once
	{name: "in the last round", begins: (*journey).stop},
	{name: "in the switch", begins: (*journey).switched},
	{name: "in the publication on the target", begins: (*journey).published},
	{name: "in the first use on the target", begins: (*journey).used, serves: onTarget},
	{name: "in the deletion of the former copies", begins: (*journey).finish, serves: onTarget},
}

// journey is one of the moves.
type journey struct {
	*cuts
	from, to string
	plan     []outage // by stage

	pod     types.UID // that is to be deleted
	deleted bool
	serving string          // the node of the database; none: it does not serve
	spent   []time.Duration // by stage
}

// server is the node on which the database serves in a stage.
func (j *journey) server(i int) string {
	if stages[i].serves == onSource && j.deleted {
		return none
	}
	return map[string]string{onSource: j.from, onTarget: j.to}[stages[i].serves]
}

// run moves the volumes under load.
func (j *journey) run(ctx context.Context, env *scenario.Environment) error {
	old, err := env.WaitPodReady(ctx, pod)
	if err != nil {
		return err
	}
	j.pod = old.UID
	var began []time.Time
	for i, s := range stages {
		if err := s.begins(j, ctx, env); err != nil {
			return fmt.Errorf("the move does not arrive %s: %w", s.name, err)
		}
		began = append(began, time.Now())
		j.serving = j.server(i)
		if j.plan[i].side == none {
			continue
		}
		if err := j.cut(ctx, env, i); err != nil {
			return fmt.Errorf("cut %d, %s: %w", j.done, s.name, err)
		}
	}
	if err := cluster.Eventually(ctx, func() error { return onlyPoolsOn(ctx, env, j.from) }); err != nil {
		return err
	}
	began = append(began, time.Now())
	for i, s := range stages {
		j.spent = append(j.spent, max(s.lasts, began[i+1].Sub(began[i])))
	}
	return nil
}

func (j *journey) ask(ctx context.Context, env *scenario.Environment) error {
	return request(ctx, env, api.AnnotationMoveTo, j.to)
}

func (j *journey) firstRound(ctx context.Context, env *scenario.Environment) error {
	if j.deleted {
		return nil
	}
	return allReach(ctx, env, api.MoveStopping, "")
}

func (j *journey) laterRounds(ctx context.Context, env *scenario.Environment) error {
	if j.deleted {
		return nil
	}
	return areCopied(ctx, env)
}

func (j *journey) stop(ctx context.Context, env *scenario.Environment) error {
	if j.deleted {
		return nil
	}
	j.deleted = true
	return env.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, pod, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &j.pod}})
}

func (j *journey) switched(ctx context.Context, env *scenario.Environment) error {
	_, _, err := someMove(ctx, env, "is handed over", func(s api.MoveStatus) bool { return s.Phase == api.MoveSwitching || s.Phase == api.MoveMoved })
	j.disconnect() // the server has ended
	return err
}

func (j *journey) published(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		for _, claim := range claims {
			bound, err := env.BoundTo(ctx, claim)
			if err == nil && bound.Node != j.to {
				err = fmt.Errorf("the PersistentVolume of %s is on %s", claim, bound.Node)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (j *journey) used(ctx context.Context, env *scenario.Environment) error {
	if err := cluster.Eventually(ctx, func() error { return env.PodReplaced(ctx, pod, j.pod) }); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, pod, j.to); err != nil {
		return err
	}
	return j.connect(ctx, env)
}

func (j *journey) finish(ctx context.Context, env *scenario.Environment) error {
	if err := cluster.Eventually(ctx, func() error { return j.areOn(ctx, env, j.to) }); err != nil {
		return err
	}
	if err := env.CheckConsistent(ctx, pod); err != nil {
		return err
	}
	if err := formerCopiesOn(ctx, env, j.from); err != nil {
		return err
	}
	return request(ctx, env, api.AnnotationMoveFinish, j.from)
}
