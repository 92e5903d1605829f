package apiproxy

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// volumes has the names of the PersistentVolumes that may be on the node. A claim's annotation does not say where its volume is: a
// claim of a static volume has none, and that of a populated one may name another node.
type volumes struct {
	mu    sync.Mutex
	seen  map[string]int // by name: the last list, or the last one before the event, that had it
	lists int            // lists that have begun
	known bool           // one list was complete
}

// note records a PersistentVolume, or that it is not on the node.
func (v *volumes) note(pv *corev1.PersistentVolume, here bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !here {
		delete(v.seen, pv.Name)
		return
	}
	if v.seen == nil {
		v.seen = map[string]int{}
	}
	v.seen[pv.Name] = v.lists
}

// has reports whether a PersistentVolume may be on the node.
func (v *volumes) has(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, there := v.seen[name]
	return there
}

func (v *volumes) areKnown() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known
}

// begin starts a list, and end forgets the names that it did not have. Watches may note others in between.
func (v *volumes) begin() (list int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lists++
	return v.lists
}

func (v *volumes) end(list int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = true
	maps.DeleteFunc(v.seen, func(_ string, last int) bool { return last < list })
}

// isHere reports whether the PersistentVolume may be on the node.
func isHere(pv *corev1.PersistentVolume, node string) bool { return isOurs(pv) && mayBeOn(pv, node) }

// learnVolumes lists the PersistentVolumes with the client's token, because csi-provisioner lists claims first. Later its own watch tells
// the changes. A static volume that is created and bound between that list and the start of this watch is not known: its claim has no
// clones until it changes. The list comes before the watch of claims, which the API server ends if no client reads it. false: the client got
// the API server's refusal, or the error.
func (p *Proxy) learnVolumes(w http.ResponseWriter, r *http.Request) (known bool, err error) {
	answer, err := p.get(r, volumesPath, "resourceVersion=0", runtime.ContentTypeProtobuf)
	if err == nil {
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return false, passOn(w, answer)
		}
		err = p.readVolumes(answer.Body)
	}
	if err != nil {
		http.Error(w, "cannot list PersistentVolumes: "+err.Error(), http.StatusBadGateway)
	}
	return err == nil, err
}

func (p *Proxy) readVolumes(body io.Reader) error {
	list := p.volumes.begin()
	err := readList(body, func(field protowire.Number, message []byte) error {
		if field != fieldItem {
			return nil
		}
		var pv corev1.PersistentVolume
		if err := pv.Unmarshal(message); err != nil {
			return fmt.Errorf("cannot decode a PersistentVolume: %w", err)
		}
		if isHere(&pv, p.node) {
			p.volumes.note(&pv, true)
		}
		return nil
	})
	if err == nil {
		p.volumes.end(list)
	}
	return err
}
