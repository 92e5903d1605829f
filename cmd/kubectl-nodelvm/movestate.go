package main

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// moveRow is how far the move of a claim's volume is. What only the claim's status says, whoever may write the claim can forge: where the volume is, its
// PersistentVolume says.
type moveRow struct {
	Claim   string    `json:"claim"` // namespace/name
	From    string    `json:"from,omitempty"`
	To      string    `json:"to,omitempty"`
	Phase   string    `json:"phase"`
	Done    lvm.Bytes `json:"copied,omitempty"`
	Total   lvm.Bytes `json:"toCopy,omitempty"`
	Changed time.Time `json:"changed,omitzero"`
	Text    string    `json:"message,omitempty"`
	Former  []string  `json:"formerCopyOn,omitempty"` // nodes
	Pods    []string  `json:"pods,omitempty"`
	Size    lvm.Bytes `json:"size"`
	Volume  string    `json:"persistentVolume,omitempty"`

	gone bool // the claim is deleted
}

func (r moveRow) object() (kind, name string) {
	if r.gone {
		return "", ""
	}
	return "persistentvolumeclaim", r.Claim
}

// ended reports whether nothing happens any more.
func (r moveRow) ended() bool { return r.Phase == api.MoveMoved || r.Phase == api.MoveCancelled }

// moveRowOf returns the state of a claim's move; false: it has none. pv is nil if it does not exist, or if known is false.
func moveRowOf(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known bool) (r moveRow, has bool) {
	s, _ := api.MoveStatusOf(claim.Annotations)
	r = moveRow{Claim: claim.Namespace + "/" + claim.Name, Volume: claim.Spec.VolumeName, From: s.From, To: claim.Annotations[api.AnnotationMoveTo], Phase: s.Phase,
		Done: lvm.Bytes(max(0, s.Done)), Total: lvm.Bytes(max(0, s.Total)), Changed: s.When(), Text: s.Message}
	if pv != nil && !pending.MayBind(pv, claim) {
		pv = nil
	}
	size := claim.Status.Capacity[corev1.ResourceStorage]
	if r.Size = lvm.Bytes(size.Value()); pv != nil {
		size = pv.Spec.Capacity[corev1.ResourceStorage]
		r.Size = lvm.Bytes(size.Value())
	}
	has = r.judge(s, claim, pv, known)
	printable.Strings(reflect.ValueOf(&r).Elem())
	return r, has
}

// judge completes a row by what the PersistentVolume says.
func (r *moveRow) judge(s api.MoveStatus, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known bool) (has bool) {
	active, on, moving := s.IsUnderWay(), "", ""
	if pv != nil {
		on, moving = pending.NodeOf(pv), pv.Annotations[api.AnnotationMovingTo]
	}
	switch {
	case !known, pv == nil && claim.Status.Phase == corev1.ClaimLost:
		if s.Phase == "" || s.To != r.To && r.To != "" {
			r.wait("", s)
			return r.To != ""
		}
		r.To = cmp.Or(r.To, s.To)
		return active || s.Phase != api.MoveWaiting || r.To != ""
	case moving != "":
		r.To = moving
		switch {
		case on == moving:
			r.Phase = api.MoveSwitching
		case !active && s.Phase != api.MoveCancelled:
			r.Phase, r.Text, r.Done, r.Total = api.MovePreparing, "", 0, 0
		}
		if on != moving {
			r.From = on
		}
		return true
	case r.To != "" && r.To != on:
		r.wait(on, s)
		return true
	case s.Phase == api.MoveMoved && s.To == on && on != "":
		r.To = on
		return true
	case r.To != "" && active: // it is there, and the last status is older than the end
		r.Phase, r.Text = api.MoveMoved, ""
		return true
	}
	return r.To == "" && s.Phase == api.MoveCancelled
}

// wait describes a move that no node has begun.
func (r *moveRow) wait(on string, s api.MoveStatus) {
	r.Phase, r.Done, r.Total = api.MoveWaiting, 0, 0
	if on != "" {
		r.From = on
	}
	if s.Phase == api.MoveWaiting && s.To == r.To && s.Message != "" {
		return
	}
	r.Changed, r.Text = time.Time{}, fmt.Sprintf("node %s has not answered: does its driver move volumes (move.enabled)?", cmp.Or(r.From, "of the volume"))
}

// copies reports whether a copy is under way: thin volumes are copied while pods use them, too.
func (r moveRow) copies() bool {
	return r.Total > 0 && (r.Phase == api.MoveCopying || r.Phase == api.MoveStopping)
}

// progress is how much is copied: "45%"; "": unknown.
func (r moveRow) progress() string {
	if !r.copies() {
		return ""
	}
	return percent(r.Done, r.Total)
}

// barWidth is the number of characters of a full bar.
const barWidth = 20

// line is the row in one line, as the commands that wait print it.
func (r moveRow) line() string {
	var b strings.Builder
	b.WriteString(r.Claim + " to " + r.To + ": " + r.Phase)
	if r.copies() {
		full := int(float64(barWidth) * float64(min(r.Done, r.Total)) / float64(r.Total))
		fmt.Fprintf(&b, " [%s%s] %s (%s)", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), r.progress(), lvm.Share(r.Done, r.Total))
	}
	if r.Text != "" {
		b.WriteString(": " + r.Text)
	}
	return b.String()
}
