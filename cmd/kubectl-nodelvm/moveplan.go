package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
)

// movePlan is what move and drain print before they write. Nothing else is decided later.
type movePlan struct {
	Groups  []*moveGroup `json:"moves"`
	Stays   []leftRow    `json:"stays,omitempty"`  // of a drain: what no move takes along
	Arrive  []string     `json:"arrive,omitempty"` // the same: what moves to the node meanwhile
	Unread  []string     `json:"notRead,omitempty"`
	Changes []moveChange `json:"changes"` // what the command writes
}

// moveChange is the annotations that a command writes on a claim; nil removes one.
type moveChange struct {
	Namespace   string         `json:"namespace"`
	Claim       string         `json:"claim"`
	Annotations map[string]any `json:"annotations"`

	claim *corev1.PersistentVolumeClaim
}

// planMove plans the moves of claims to a node; "": the node that fits each group best. A claim whose move has begun keeps its target.
func (f *moveFacts) planMove(claims []*corev1.PersistentVolumeClaim, to string) *movePlan {
	p, t := &movePlan{Unread: f.unread, Changes: []moveChange{}}, newTargets(f)
	p.Groups = f.groups(claims)
	slices.SortStableFunc(p.Groups, func(a, b *moveGroup) int { return cmp.Compare(b.size(), a.size()) }) // the largest first: they fit on fewer nodes
	for _, g := range p.Groups {
		f.target(t, g, to)
		if g.To != "" {
			t.place(g)
			p.Changes = append(p.Changes, g.changes()...)
		}
	}
	slices.SortFunc(p.Groups, func(a, b *moveGroup) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Claims[0].Name, b.Claims[0].Name))
	})
	printable.Strings(reflect.ValueOf(p).Elem()) // annotations of tenants are in its sentences
	return p
}

// target decides where a group moves, or why it cannot.
func (f *moveFacts) target(t *targets, g *moveGroup, to string) {
	begun := ""
	for _, c := range g.Claims {
		if target, moving := f.isMoving(c.claim); moving {
			begun = target
		}
	}
	if to = cmp.Or(to, begun); to == "" {
		to = g.wanted(t)
	}
	if g.refuse(f, to); len(g.Refused) > 0 || begun != "" && begun == to {
		if len(g.Refused) == 0 {
			g.To = to
		}
		return
	}
	if why := f.cannotMove(g.From); why != "" {
		g.Refused = append(g.Refused, fmt.Sprintf("the volumes of %s are on node %s: %s", strings.Join(g.names(""), ", "), g.From, why))
		return
	}
	if to != "" {
		for _, text := range t.obstacles(g, to) {
			g.Refused = append(g.Refused, fmt.Sprintf("node %s cannot have the volumes of %s: %s", to, strings.Join(g.names(""), ", "), text))
		}
		if len(g.Refused) == 0 {
			g.To = to
		}
	} else if t.nodes == nil {
		g.Refused = append(g.Refused, "the plugin chooses a node only if you may list nodes: give --to NODE")
	} else if g.To, g.PassedOver = t.choose(g); g.To == "" {
		g.Refused = append(g.Refused, fmt.Sprintf("no other node can have the volumes of %s", strings.Join(g.names(""), ", ")))
	}
	g.note()
}

// wanted returns the node that the claims name already, if it can still have them; "": none.
func (g *moveGroup) wanted(t *targets) string {
	to := g.Claims[0].claim.Annotations[api.AnnotationMoveTo]
	if to == "" || to == g.From || len(t.obstacles(g, to)) > 0 {
		return ""
	}
	return to
}

// refuse adds why claims and pods of the group cannot move.
func (g *moveGroup) refuse(f *moveFacts, to string) {
	for _, c := range g.Claims {
		if why := f.mayNotMove(c.claim, to); why != "" {
			g.Refused = append(g.Refused, why)
		}
	}
	for _, pod := range g.pods {
		if why := withoutController(pod); why != "" && !slices.ContainsFunc(g.Claims, func(c moveClaim) bool { return c.Moving }) {
			g.Refused = append(g.Refused, why)
		}
	}
}

// note adds which rules of the pods were not checked.
func (g *moveGroup) note() {
	for _, pod := range g.pods {
		if rules := unchecked(pod); len(rules) > 0 {
			g.Notes = append(g.Notes, fmt.Sprintf("not checked of pod %s: %s", pod.Name, strings.Join(rules, ", ")))
		}
	}
}

// changes are the annotations that the group's claims lack.
func (g *moveGroup) changes() (list []moveChange) {
	for _, c := range g.Claims {
		want := map[string]any{api.AnnotationMoveTo: g.To, api.AnnotationMoveWith: nil}
		if others := g.names(c.Name); len(others) > 0 {
			want[api.AnnotationMoveWith] = strings.Join(others, ",")
		}
		if change, needed := changeOf(c.claim, want); needed && !c.Moving {
			list = append(list, change)
		}
	}
	return list
}

// changeOf leaves out the annotations that a claim has already.
func changeOf(claim *corev1.PersistentVolumeClaim, want map[string]any) (change moveChange, needed bool) {
	change = moveChange{Namespace: claim.Namespace, Claim: claim.Name, Annotations: map[string]any{}, claim: claim}
	for key, value := range want {
		if now, has := claim.Annotations[key]; has != (value != nil) || has && now != value {
			change.Annotations[key] = value
		}
	}
	return change, len(change.Annotations) > 0
}

// byHand is the kubectl command that makes the change.
func (m moveChange) byHand() string {
	words := []string{"kubectl -n", printable.ShellWord(m.Namespace), "annotate pvc", printable.ShellWord(m.Claim), "--overwrite"}
	for _, key := range []string{api.AnnotationMoveTo, api.AnnotationMoveWith, api.AnnotationMoveFinish} {
		switch value, has := m.Annotations[key]; {
		case !has:
		case value == nil:
			words = append(words, key+"-")
		default:
			words = append(words, key+"="+printable.ShellWord(fmt.Sprint(value)))
		}
	}
	return strings.Join(words, " ")
}

// refused returns all refusals of a plan.
func (p *movePlan) refused() (texts []string) {
	for _, g := range p.Groups {
		texts = append(texts, g.Refused...)
	}
	return append(texts, p.Arrive...)
}

// write prints the plan.
func (p *movePlan) write(w io.Writer) error {
	t := &table{header: []string{"CLAIM", "SIZE", "TO COPY", "PODS", "FROM", "TO", "TIME"}, none: "No claims to move."}
	for _, g := range p.Groups {
		for _, c := range g.Claims {
			to, took := g.To, duration.HumanDuration(g.time())
			if c.Moving {
				to += " (moving)"
			}
			if g.To == "" {
				took = ""
			}
			t.add(g.Namespace+"/"+c.Name, c.Size.String(), c.Copied.String(), strings.Join(g.Pods, ","), g.From, to, took)
		}
	}
	if err := t.write(w); err != nil {
		return err
	}
	var text strings.Builder
	for _, g := range p.Groups {
		g.write(&text)
	}
	if total, copied := p.total(); len(p.Groups) > 1 {
		fmt.Fprintf(&text, "together: %s, %s to copy\n", total, copied)
	}
	for _, unread := range p.Unread {
		writeLine(&text, "not read: ", unread)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// writePassedOver is what is printed of a plan that is refused, beside the refusals.
func (p *movePlan) writePassedOver(w io.Writer) error {
	var text strings.Builder
	for _, g := range p.Groups {
		g.writePassedOver(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// write prints the sentences about a group.
func (g *moveGroup) write(text *strings.Builder) {
	for _, note := range g.Notes {
		writeLine(text, "note: ", g.Namespace+": "+note)
	}
	g.writePassedOver(text)
}

// writePassedOver prints why the other nodes were not chosen: in one line, if many have no driver.
func (g *moveGroup) writePassedOver(text *strings.Builder) {
	shown, without := g.PassedOver, []string(nil)
	if at := slices.IndexFunc(shown, func(n nodeObstacles) bool { return n.noDriver }); at >= 0 && len(shown)-at > nodesReported {
		for _, n := range shown[at:] {
			without = append(without, n.Node)
		}
		shown = shown[:at]
	}
	for i, n := range shown {
		if i == nodesShown {
			fmt.Fprintf(text, "passed over: %d more nodes: see -o json\n", len(shown)-i)
			break
		}
		writeLine(text, "passed over: ", fmt.Sprintf("%s for %s: %s", n.Node, strings.Join(g.names(""), ", "), strings.Join(n.Obstacles, "; ")))
	}
	if len(without) > 0 {
		writeLine(text, "passed over: ", fmt.Sprintf("%d nodes without a driver that receives volumes: %s", len(without), nodeWords(without)))
	}
}

// total sums the groups that move.
func (p *movePlan) total() (size, copied lvm.Bytes) {
	for _, g := range p.Groups {
		for _, c := range g.Claims {
			if g.To != "" && !c.Moving {
				size, copied = size+c.Size, copied+c.Copied
			}
		}
	}
	return size, copied
}

// toStop are the pods that hold the volumes on their nodes: the copies begin when they have ended.
func (p *movePlan) toStop() (pods []*corev1.Pod) {
	for _, g := range p.Groups {
		for _, pod := range g.pods {
			if g.To != "" && pod.Spec.NodeName == g.From && g.From != "" && pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// writeNext says what the user has to do for the moves to go on.
func writeNext(w io.Writer, pods []*corev1.Pod) error {
	if len(pods) == 0 {
		return nil
	}
	var text strings.Builder
	text.WriteString("next: delete the pods that use the volumes when an interruption suits you. Thin volumes are copied before, others when their pods have ended; a pod that replaces one waits until the volumes have moved:\n")
	for _, pod := range pods {
		writeLine(&text, "  ", fmt.Sprintf("kubectl -n %s delete pod %s", pod.Namespace, printable.ShellWord(pod.Name)))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// estimate is the time for all copies of a plan, one after the other on each source.
func (p *movePlan) estimate() (most time.Duration) {
	sum := map[string]time.Duration{}
	for _, g := range p.Groups {
		if g.To != "" {
			sum[g.From] += g.time()
			most = max(most, sum[g.From])
		}
	}
	return most
}
