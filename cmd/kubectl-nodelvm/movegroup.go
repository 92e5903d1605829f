package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// moveGroup is the claims that move together: those of a pod, and of the pods that share them.
type moveGroup struct {
	Namespace  string          `json:"namespace"`
	Claims     []moveClaim     `json:"claims"`
	Pods       []string        `json:"pods,omitempty"` // that use the claims
	From       string          `json:"from"`
	To         string          `json:"to,omitempty"` // "": no node
	Seconds    int64           `json:"estimatedSeconds"`
	Refused    []string        `json:"refused,omitempty"` // sentences: why the claims cannot move
	Notes      []string        `json:"notes,omitempty"`
	PassedOver []nodeObstacles `json:"passedOver,omitempty"` // of a target that the plan chooses

	pods   []*corev1.Pod
	others map[string]string // nodes of the pods' claims that stay where they are, by name
}

// moveClaim is one claim of a group.
type moveClaim struct {
	Name      string    `json:"name"`
	Volume    string    `json:"persistentVolume,omitempty"`
	Class     string    `json:"storageClass,omitempty"`
	Size      lvm.Bytes `json:"size"`
	Copied    lvm.Bytes `json:"toCopy"`
	Snapshots []string  `json:"snapshotsThatStay,omitempty"`
	Moving    bool      `json:"moving,omitempty"` // already

	claim *corev1.PersistentVolumeClaim
}

// nodeObstacles is a node that cannot have the volumes, and why.
type nodeObstacles struct {
	Node      string   `json:"node"`
	Obstacles []string `json:"obstacles"`
	noDriver  bool     // no driver there receives volumes
}

// rank sorts nodes without such a driver behind the others, of which the user may want one.
func (n nodeObstacles) rank() int {
	if n.noDriver {
		return 1
	}
	return 0
}

// time is the estimate of the copies.
func (g *moveGroup) time() time.Duration { return time.Duration(g.Seconds) * time.Second }

// names returns the claims' names, without one of them.
func (g *moveGroup) names(without string) (names []string) {
	for _, c := range g.Claims {
		if c.Name != without {
			names = append(names, c.Name)
		}
	}
	return names
}

// size returns the sum of the volumes.
func (g *moveGroup) size() (sum lvm.Bytes) {
	for _, c := range g.Claims {
		sum += c.Size
	}
	return sum
}

// groups returns the groups of the claims to move, each claim once. A claim of their pods that is on another node than they are stays there.
func (f *moveFacts) groups(asked []*corev1.PersistentVolumeClaim) (groups []*moveGroup) {
	seen := map[string]bool{}
	for _, claim := range asked {
		if seen[claim.Namespace+"/"+claim.Name] {
			continue
		}
		g := f.group(claim)
		for _, c := range g.Claims {
			seen[c.claim.Namespace+"/"+c.Name] = true
		}
		f.describe(g, asked)
		groups = append(groups, g)
	}
	return groups
}

// group finds the claims that move together with a claim, as the node's driver does: by the pods that have not ended, and by the annotation
// api.AnnotationMoveWith.
func (f *moveFacts) group(claim *corev1.PersistentVolumeClaim) *moveGroup {
	g := &moveGroup{Namespace: claim.Namespace, From: f.nodeOf(claim), others: map[string]string{}}
	seen, open := map[string]bool{claim.Name: true}, []*corev1.PersistentVolumeClaim{claim}
	add := func(name string) {
		other := f.claim(claim.Namespace, strings.TrimSpace(name))
		if other == nil || seen[other.Name] {
			return
		}
		seen[other.Name] = true
		switch on := f.nodeOf(other); {
		case !f.isOurs(other) || isEphemeral(other):
		case on != g.From:
			g.others[other.Name] = on
		default:
			open = append(open, other)
		}
	}
	for len(open) > 0 {
		next := open[0]
		open = open[1:]
		g.Claims = append(g.Claims, moveClaim{Name: next.Name, claim: next})
		for _, name := range strings.Split(next.Annotations[api.AnnotationMoveWith], ",") {
			add(name)
		}
		for _, pod := range f.users(next) {
			if !slices.Contains(g.pods, pod) {
				g.pods = append(g.pods, pod)
			}
			for _, name := range pending.ClaimNames(pod) {
				add(name)
			}
		}
	}
	slices.SortFunc(g.Claims, func(a, b moveClaim) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(g.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return g
}

// describe adds sizes, snapshots, and what a user has to know of a group.
func (f *moveFacts) describe(g *moveGroup, asked []*corev1.PersistentVolumeClaim) {
	var copied lvm.Bytes
	var added []string
	for i := range g.Claims {
		c := &g.Claims[i]
		c.Volume, c.Class = c.claim.Spec.VolumeName, api.ClassOf(c.claim.Annotations, c.claim.Spec.StorageClassName)
		c.Size, c.Copied = f.sizeOf(c.claim)
		c.Snapshots = f.snapshotsOf(c.claim, g.From)
		_, c.Moving = f.isMoving(c.claim)
		copied += c.Copied
		if !slices.Contains(asked, c.claim) {
			added = append(added, c.Name)
		}
	}
	g.Seconds = int64(f.copyTime(g.From, g.size(), copied) / time.Second)
	for _, pod := range g.pods {
		g.Pods = append(g.Pods, pod.Name)
	}
	if len(g.Claims) > 1 {
		why := "their annotations " + api.AnnotationMoveWith + " name each other"
		if len(g.Pods) > 0 {
			why = "pods that use them: " + strings.Join(g.Pods, ", ")
		}
		g.Notes = append(g.Notes, fmt.Sprintf("the claims %s move together (%s)%s", strings.Join(g.names(""), ", "), why, suffix("; added to those that you named: ", strings.Join(added, ", "))))
	}
	for _, c := range g.Claims {
		if len(c.Snapshots) > 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("the snapshots of claim %s stay on node %s, and are lost with it: %s. %s", c.Name, g.From, strings.Join(c.Snapshots, ", "), f.restores(c.Class, g.From)))
		}
		if text := begins(c.claim); text != "" {
			g.Notes = append(g.Notes, text)
		}
	}
}
