package ondisk

import (
	"slices"
	"sync"
)

// groupText is one metadata text with a valid checksum. The reader parses it once, however many PVs and readings have it.
type groupText struct {
	checksum uint32
	text     string
	once     sync.Once
	imported *imported
	err      error
}

// read returns the group that the text describes; callers must not change it. The error is that of importGroup.
func (t *groupText) read() (*imported, error) {
	t.once.Do(func() { t.imported, t.err = importGroup(t.text) })
	return t.imported, t.err
}

// same reports whether two texts are equal. One text can have two groupTexts: groupTexts forgets one that a concurrent reading
// did not find.
func (t *groupText) same(other *groupText) bool {
	return t == other || t.checksum == other.checksum && t.text == other.text
}

// maxTexts is more than a node has groups. A forgotten text is parsed again.
const maxTexts = 64

// groupTexts returns one groupText for equal texts that it still knows.
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
	if len(g.known) >= maxTexts { // a cancelled reading does not call keep
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
