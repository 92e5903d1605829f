package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// begin runs a command of the plugin beside the caller, whose context ends if the command fails. The function that it returns waits for the command's end,
// and fails unless it says the words.
func begin(ctx context.Context, env *scenario.Environment, command string) (during context.Context, end func(words string) error) {
	during, cancel := context.WithCancelCause(ctx)
	said := make(chan string, 1)
	go func() {
		out, err := env.Shell(ctx, command)
		if err != nil {
			cancel(fmt.Errorf("%s: %w:\n%s", command, err, out))
		}
		said <- out
	}()
	return during, func(words string) error {
		out := <-said
		defer cancel(nil)
		if err := context.Cause(during); err != nil {
			return err
		}
		env.Reporter.Note("%s printed %d lines, the last: %s", command, strings.Count(out, "\n"), last(out))
		if !strings.Contains(out, words) {
			return fmt.Errorf("%s does not say %q:\n%s", command, words, out)
		}
		return nil
	}
}

func last(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return lines[len(lines)-1]
}

// because adds why a context ended to an error.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return err
}

// someMove waits until the status of a claim is such that it is true for is, and returns the claim with it.
func someMove(ctx context.Context, env *scenario.Environment, what string, is func(api.MoveStatus) bool) (claim string, status api.MoveStatus, err error) {
	err = cluster.Eventually(ctx, func() error {
		list, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		all := map[string]string{}
		for i := range list.Items {
			s, has := api.MoveStatusOf(list.Items[i].Annotations)
			if has && is(s) {
				claim, status = list.Items[i].Name, s
				return nil
			}
			all[list.Items[i].Name] = s.Phase + " " + s.Message
		}
		return fmt.Errorf("no claim %s: %v", what, all)
	})
	return claim, status, err
}

// killDriver ends the driver's process on a node.
func killDriver(ctx context.Context, env *scenario.Environment, node string) error {
	_, err := env.RunOnNode(ctx, node, "sh", "-ec", "kill -KILL $(pgrep -ox nodelvm)")
	return err
}

func copiesAhead(s api.MoveStatus) bool { return s.Phase == api.MoveStopping && s.Done < s.Total }

func isCopying(s api.MoveStatus) bool { return s.Phase == api.MoveCopying && s.Done < s.Total }

// killSource kills the driver while thin volumes are copied from it, and changes what the pods have.
func (d *drains) killSource(ctx context.Context, env *scenario.Environment) error {
	claim, status, err := someMove(ctx, env, "is copied while its pod runs", copiesAhead)
	if err != nil {
		return err
	}
	env.Reporter.Note("the driver of %s is killed while %s: %s", here, claim, status.Message)
	if err := killDriver(ctx, env, here); err != nil {
		return err
	}
	if err := oneIsAuthoritative(ctx, env, here, allClaims()); err != nil {
		return err
	}
	for _, s := range sets {
		if _, err := s.exec(ctx, env, changeContent); err != nil {
			return err
		}
		if d.content[s.name], err = s.read(ctx, env); err != nil {
			return err
		}
	}
	return nil
}

// killTarget kills the driver to which a volume is copied, and the API server.
func killTarget(ctx context.Context, env *scenario.Environment) error {
	claim, status, err := someMove(ctx, env, "is copied", isCopying)
	if err != nil {
		return err
	}
	env.Reporter.Note("the driver of %s is killed while %s: %s; then the API server", status.To, claim, status.Message)
	if err := killDriver(ctx, env, status.To); err != nil {
		return err
	}
	if err := env.Lab.RestartAPIServer(ctx); err != nil {
		return err
	}
	return oneIsAuthoritative(ctx, env, here, allClaims())
}

// cutTarget cuts the power of the node that receives volumes, and boots it.
func cutTarget(ctx context.Context, env *scenario.Environment, source string) error {
	claim, status, err := someMove(ctx, env, "is copied", isCopying)
	if err != nil {
		return err
	}
	env.Reporter.Note("the power of %s is cut while %s: %s", here, claim, status.Message)
	if err := errors.Join(env.Lab.PowerCut(here), env.Lab.Boot(ctx, here)); err != nil {
		return err
	}
	return oneIsAuthoritative(ctx, env, source, allClaims())
}
