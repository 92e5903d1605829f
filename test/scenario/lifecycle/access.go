package lifecycle

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func access() scenario.Scenario {
	return scenario.Scenario{Title: "Every file system and every kind of access", Steps: []scenario.Step{
		{Says: "an xfs and a btrfs clone are mounted beside their origins, and each gets different data", Prove: copiesBeside},
		{Says: "one volume serves two pods of its node, one of which may only read; mount options are the class's", Prove: shared},
		{Says: "fsGroup, a subPath and a generic ephemeral volume serve a pod that is not root", Prove: unprivileged},
		{Says: "a second pod waits for a ReadWriteOncePod volume until the first is deleted", Prove: oneAtATime},
		{Says: "the ephemeral volume is deleted with its pod", Prove: ephemeralGone},
	}}
}

const (
	writeOrigins = `for d in /xfs /btrfs; do grep -q " $d ${d#/} " /proc/mounts && echo origin > $d/file; done && sync`
	changeCopies = `for d in /xfs /btrfs; do grep -q " $d ${d#/} " /proc/mounts && [ "$(cat $d/file)" = origin ] && echo copy > $d/file || exit 1; done; sync`
	readOrigins  = `cat /xfs/file /btrfs/file`
	writeShared  = `grep -q ' /xfs xfs rw,.*noatime' /proc/mounts && echo shared > /xfs/file`
	readShared   = `grep -q ' /origin xfs ro,' /proc/mounts && [ "$(cat /origin/file)" = shared ] && ! touch /origin/file`
)

func copiesBeside(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-origins.yaml")(ctx, env); err != nil {
		return err
	}
	origins, err := env.WaitPodReady(ctx, "origins")
	if err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "origins", "sh", "-ec", writeOrigins); err != nil {
		return err
	}
	if err := scenario.Apply("life-copies.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "copies", origins.Spec.NodeName); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "copies", "sh", "-ec", changeCopies); err != nil {
		return err
	}
	content, err := env.ExecInPod(ctx, "origins", "sh", "-ec", readOrigins)
	if err == nil && content != "origin\norigin" {
		err = fmt.Errorf("the origins' files say %q", content)
	}
	return err
}

func shared(ctx context.Context, env *scenario.Environment) error {
	for _, step := range []struct{ pod, script string }{
		{"origins", writeShared},
		{"copies", readShared},
	} {
		if _, err := env.ExecInPod(ctx, step.pod, "sh", "-ec", step.script); err != nil {
			return err
		}
	}
	return env.Delete(ctx, "pod/copies", "pod/origins")
}

func unprivileged(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.Apply("life-single.yaml"), scenario.PodReady("single-1"))(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "single-1-scratch"); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, "single-1", "sh", "-ec", `[ "$(id -u)" = 1000 ]; echo first > /data/file; echo scratch > /scratch/file; sync`)
	return err
}

func oneAtATime(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-single-second.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.WaitEvent(ctx, "single-2", "ReadWriteOncePod"); err != nil {
		return err
	}
	if err := env.Delete(ctx, "pod/single-1"); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "single-2"); err != nil {
		return err
	}
	content, err := env.ExecInPod(ctx, "single-2", "cat", "/data/inside/here/file")
	if err == nil && content != "first" {
		err = fmt.Errorf("below the subPath the file says %q", content)
	}
	return err
}

func ephemeralGone(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		_, err := env.Claim(ctx, "single-1-scratch")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("its claim is still there"))
	})
}
