package ondisk

import (
	"slices"
	"sync"
)

// groupText is one metadata text whose checksum holds. It is read once, however many PVs and readings it is met on.
type groupText struct {
	checksum uint32
	text     string
	once     sync.Once
	imported *imported
	err      error
}

// read answers the group that the text describes; nobody may change it. The error is errUnsupported.
func (t *groupText) read() (*imported, error) {
	t.once.Do(func() { t.imported, t.err = importGroup(t.text) })
	return t.imported, t.err
}

// same tells whether two texts are equal. Of one text there can be two: groupTexts forgets one that a reading beside this one
// has not met.
func (t *groupText) same(other *groupText) bool {
	return t == other || t.checksum == other.checksum && t.text == other.text
}

// maxTexts is over how many groups a node has. One that is forgotten is read again.
const maxTexts = 64

// groupTexts makes of equal texts one, as far as they are read at the same time.
type groupTexts struct {
	mu    sync.Mutex
	known []*groupText
}

func (g *groupTexts) intern(checksum uint32, text []byte) *groupText {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.known {
		if t.checksum == checksum && t.text == string(text) {
			return t
		}
	}
	t := &groupText{checksum: checksum, text: string(text)}
	if len(g.known) >= maxTexts { // readings that are cut off forget nothing
		g.known = slices.Delete(g.known, 0, 1)
	}
	g.known = append(g.known, t)
	return t
}

// keep forgets the texts that are on none of these devices.
func (g *groupTexts) keep(probes []probe) {
	used := map[*groupText]bool{}
	for _, p := range probes {
		for _, a := range p.areas {
			used[a.text] = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known = slices.DeleteFunc(g.known, func(t *groupText) bool { return !used[t] })
}
