package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

// checkAttributes reports changes of a volume's VolumeAttributesClass that failed, or that no driver has begun. A volume that moves is changed afterwards.
func checkAttributes(f *facts, found func(where, what, fix string)) {
	ours, reported := f.volumesByClaim(), 0
	for i := range f.claims {
		claim := &f.claims[i]
		pv := ours[claim.Namespace+"/"+claim.Name]
		if pv == nil || pv.Annotations[api.AnnotationMoveRecord] != "" || reported == claimsReported {
			continue
		}
		if what, fix := attributesFault(claim); what != "" {
			reported++
			found("claim "+claim.Namespace+"/"+claim.Name, what, fix+"; see docs/howto/io-limits.md")
		}
	}
}

// attributesFault says why a bound claim does not have the VolumeAttributesClass that it names; "": it has, or the driver is about to change it.
func attributesFault(claim *corev1.PersistentVolumeClaim) (what, fix string) {
	asked, status := ptr.Deref(claim.Spec.VolumeAttributesClassName, ""), claim.Status.ModifyVolumeStatus
	failure := find(claim.Status.Conditions, func(c *corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError && c.Status == corev1.ConditionTrue
	})
	switch {
	case asked == "":
		return "", "" // nor does it ask for one
	case status == nil && asked != ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""):
		return "it names the VolumeAttributesClass " + asked + ", and no driver has begun to change its volume", "install the chart with ioLimits.enabled"
	case status != nil && status.Status == corev1.PersistentVolumeClaimModifyVolumePending:
		return "it names the VolumeAttributesClass " + asked + ", which does not exist", "create it, or name another one in the claim"
	case status != nil && failure != nil:
		return fmt.Sprintf("the change of its volume to the VolumeAttributesClass %s fails: %s", status.TargetVolumeAttributesClassName, failure.Message), "follow the message, or name another class in the claim"
	}
	return "", ""
}

// stuckFor is how long a move must be unchanged before doctor reports it. The status of one that copies changes every few seconds.
const stuckFor = 10 * time.Minute

// checkMoves reports moves that wait for something, with what they say.
func checkMoves(f *facts, found func(where, what, fix string)) {
	reported := 0
	for i := range f.claims {
		claim := &f.claims[i]
		if claim.Annotations[api.AnnotationMoveTo] == "" && claim.Annotations[api.AnnotationMoveStatus] == "" {
			continue // a large cluster has many claims, and f.volume searches all volumes
		}
		pv := f.volume(claim)
		if pv == nil && (claim.Status.Phase != corev1.ClaimLost || api.ProvisionerOf(claim.Annotations) != api.DriverName) {
			continue // it has no volume yet, or another driver's
		}
		row, has := moveRowOf(claim, pv, !f.unreadable[theVolumes])
		if !has || row.ended() || !row.Changed.IsZero() && f.now.Sub(row.Changed) < stuckFor || reported == claimsReported {
			continue
		}
		reported++
		what := "the move of its volume to " + row.To + " has not begun: " + row.Text
		if !row.Changed.IsZero() {
			what = fmt.Sprintf("the move of its volume to %s is %s, unchanged for %s: %s", row.To, row.Phase, age(row.Changed, f.now), row.Text)
		}
		fix := fmt.Sprintf("follow the message; or cancel the move, until the volume is handed over: kubectl -n %s annotate pvc %s %s-; see docs/howto/move.md", claim.Namespace, claim.Name, api.AnnotationMoveTo)
		if f.movesNothing() {
			fix = "set move.enabled to true in the chart's values: until then the move neither goes on nor ends, and no pod starts with a volume whose move has begun"
		}
		found("claim "+row.Claim, what, fix)
	}
}

// movesNothing reports whether the drivers run without moves.
func (f *facts) movesNothing() bool {
	driver := f.container(driverContainer)
	return driver != nil && !slices.ContainsFunc(driver.Args, func(arg string) bool { return strings.HasPrefix(arg, moveFlag) && arg != moveFlag })
}
