package move

import (
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// alone says why a volume is not copied ahead, so that it is copied while its pods are stopped.
type alone struct {
	why  error
	when time.Time
}

// How long after a failure the agent tries to copy a volume ahead again.
const (
	aloneFor  = 10 * time.Minute
	aloneBusy = time.Minute
)

// copiesAlone takes note that a volume cannot be copied ahead now.
func (a *Agent) copiesAlone(volume string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.alone) > maxReported {
		clear(a.alone)
	}
	a.alone[volume] = alone{why, a.now()}
}

// aloneNow returns why a volume cannot be copied ahead now; nil: it can, or the last attempt was some time ago.
func (a *Agent) aloneNow(volume string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, wait := a.alone[volume], aloneFor
	if lvm.KindOf(was.why) == lvm.KindBusy {
		wait = aloneBusy
	}
	if was.why == nil || a.now().Sub(was.when) >= wait {
		return nil
	}
	return was.why
}
