package ondisk

import (
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
)

const (
	weakIdentityFor = 10 * time.Second       // the kernel may learn a disk's numbers after it lists the disk
	identityWait    = 500 * time.Millisecond // for a device that does not answer: some drivers ask it
	maxIdentities   = 1024
)

// identities remembers what identifies each disk.
type identities struct {
	mu      sync.Mutex
	known   map[BlockDevice]identified
	waiting map[BlockDevice]bool // readings that have not ended
}

type identified struct {
	id    accepted.Identity
	until time.Time // zero: for ever
}

// of returns the identity of a device; the zero value for a device that was removed. It remembers that of a disk, and reads that of any
// other device each time: a loop device can be attached to another file.
func (i *identities) of(sys string, device BlockDevice) accepted.Identity {
	if id, known := i.remembered(device); known {
		return id
	}
	id, err := accepted.Identify(sys, device.Name)
	if err != nil {
		return accepted.Identity{}
	}
	if device.Disk {
		i.remember(device, id)
	}
	return id
}

// soon is of for a device that may not answer; known is false until it does.
func (i *identities) soon(sys string, device BlockDevice) (id accepted.Identity, known bool) {
	if id, known = i.remembered(device); known {
		return id, true
	}
	if !i.begin(device) {
		return id, false
	}
	read := make(chan accepted.Identity, 1)
	go func() {
		defer i.end(device)
		read <- i.of(sys, device)
	}()
	select {
	case id = <-read:
		return id, true
	case <-time.After(identityWait):
		return id, false
	}
}

func (i *identities) remembered(device BlockDevice) (accepted.Identity, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	has, is := i.known[device]
	return has.id, is && (has.until.IsZero() || time.Now().Before(has.until))
}

func (i *identities) remember(device BlockDevice, id accepted.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil || len(i.known) > maxIdentities {
		i.known = map[BlockDevice]identified{}
	}
	has := identified{id: id}
	if id.WWID == "" {
		has.until = time.Now().Add(weakIdentityFor)
	}
	i.known[device] = has
}

// begin reports whether no other reading of the device waits.
func (i *identities) begin(device BlockDevice) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.waiting[device] {
		return false
	}
	if i.waiting == nil {
		i.waiting = map[BlockDevice]bool{}
	}
	i.waiting[device] = true
	return true
}

func (i *identities) end(device BlockDevice) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, device)
}
