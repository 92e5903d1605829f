package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// followed is a claim whose move a command waits for.
type followed struct {
	namespace, claim, to string

	last string // line
	done bool
	left string // why the volume did not move; "": it did
}

// follower prints the moves until they end.
type follower struct {
	read  func(ctx context.Context, namespace, name string) (claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known bool, err error)
	every time.Duration
	now   func() time.Time
}

// followEvery is the interval between two readings of all claims.
const followEvery = 2 * time.Second

func (c *cluster) follower() *follower {
	return &follower{read: c.claimWithVolume, every: followEvery, now: time.Now}
}

// claimWithVolume reads a claim and its PersistentVolume; nil: there is none. known is false if the user may not read PersistentVolumes.
func (c *cluster) claimWithVolume(ctx context.Context, namespace, name string) (claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known bool, err error) {
	claim, pv = &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	if err := c.in(namespace, "persistentvolumeclaims").Name(name).Do(ctx).Into(claim); err != nil {
		return nil, nil, true, ignoreNotFound(err)
	}
	if len(validation.IsDNS1123Subdomain(claim.Spec.VolumeName)) > 0 { // a tenant can write anything there
		return claim, nil, true, nil
	}
	switch err := c.in("", "persistentvolumes").Name(claim.Spec.VolumeName).Do(ctx).Into(pv); {
	case apierrors.IsForbidden(err):
		return claim, nil, false, nil
	case err != nil:
		return claim, nil, true, ignoreNotFound(err)
	}
	return claim, pv, true, nil
}

var errInterrupted = errors.New("interrupted: the moves go on without this command. Repeat it to watch them, or list them: kubectl nodelvm moves. To stop one: kubectl nodelvm move CLAIM --cancel")

// follow prints a line whenever the state of a move changes, until all have ended. A failed request is repeated: moves last, and API servers restart. So is one
// that is refused, if an earlier one was not: an API server that starts refuses requests until it knows the roles.
func (f *follower) follow(ctx context.Context, w io.Writer, list []*followed) error {
	for {
		open := 0
		for _, x := range list {
			if x.done {
				continue
			}
			line, err := f.look(ctx, x)
			switch {
			case ctx.Err() != nil:
				return errInterrupted
			case x.last == "" && isPermanent(err):
				return err
			case err != nil:
				line = x.namespace + "/" + x.claim + ": cannot be read, will retry: " + err.Error()
			}
			if line != x.last {
				x.last = line
				if _, err := fmt.Fprintln(w, f.now().Format(time.TimeOnly), line); err != nil {
					return err
				}
			}
			if !x.done {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(f.every):
		}
	}
}

// isPermanent reports whether a repeated request would fail, too.
func isPermanent(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// look reads one claim and returns the line about it.
func (f *follower) look(ctx context.Context, x *followed) (line string, err error) {
	claim, pv, known, err := f.read(ctx, x.namespace, x.claim)
	if err != nil {
		return "", err
	}
	name := x.namespace + "/" + x.claim
	if claim == nil || claim.DeletionTimestamp != nil && pv == nil {
		x.done, x.left = true, "the claim is deleted"
		return name + ": " + x.left, nil
	}
	row, has := moveRowOf(claim, pv, known)
	switch to := claim.Annotations[api.AnnotationMoveTo]; {
	case has && row.Phase == api.MoveMoved && row.To == x.to:
		x.done = true
	case known && pv != nil && pending.NodeOf(pv) == x.to && pv.Annotations[api.AnnotationMovingTo] == "" && to == x.to:
		x.done = true
		return name + " is on " + x.to, nil
	case to != x.to && (!has || row.ended() || pv != nil && pv.Annotations[api.AnnotationMovingTo] == ""):
		x.done, x.left = true, "the move is cancelled"
		return name + ": " + x.left, nil
	}
	return row.line(), nil
}
