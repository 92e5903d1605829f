package ondisk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// A volume group's metadata is text in LVM's configuration syntax (lvm2, libdm/libdm-config.c). vgParser parses the part of it
// that LVM writes: sections, `key = value`, strings, whole numbers, lists of those, comments. Anything else is an error, and the device
// counts as unreadable.

// maxDepth is far above what LVM writes: group, logical_volumes, one volume, its segment.
const maxDepth = 8

// maxNodes limits the parsed form of a text: with LVM's 11 bytes or more to a name or value these are 22 MiB.
const maxNodes = 2_000_000

// section is one `name { ... }`; the whole text is the outermost one, without a name.
type section struct {
	name     string
	entries  []entry
	sections []section
}

// entry is one `key = value`. A list has any number of values, a scalar exactly one.
type entry struct {
	key    string
	list   bool
	values []scalar
}

// scalar is a string or a whole number.
type scalar struct {
	text   string
	number int64
	isText bool
}

func (s *section) find(name string) *section {
	for i := range s.sections {
		if s.sections[i].name == name {
			return &s.sections[i]
		}
	}
	return nil
}

func (s *section) entry(key string) *entry {
	for i := range s.entries {
		if s.entries[i].key == key {
			return &s.entries[i]
		}
	}
	return nil
}

// unique refuses repeated names: LVM would merge the two, but never writes them.
func (s *section) unique() error {
	if len(s.sections)+len(s.entries) <= fewNames {
		return s.uniqueOfFew()
	}
	seen := make(map[string]bool, len(s.sections)+len(s.entries))
	for i := range s.entries {
		seen[s.entries[i].key] = true
	}
	for i := range s.sections {
		seen[s.sections[i].name] = true
	}
	if len(seen) < len(s.sections)+len(s.entries) {
		return fmt.Errorf("a name is repeated in section %q", s.name)
	}
	return nil
}

// fewNames is the number of names up to which a comparison of each pair is faster than a map: volumes and segments have fewer.
const fewNames = 16

func (s *section) uniqueOfFew() error {
	var names [fewNames]string
	n := 0
	twice := func(name string) bool {
		for _, other := range names[:n] {
			if other == name {
				return true
			}
		}
		names[n] = name
		n++
		return false
	}
	for i := range s.entries {
		if twice(s.entries[i].key) {
			return fmt.Errorf("%q is repeated in section %q", s.entries[i].key, s.name)
		}
	}
	for i := range s.sections {
		if twice(s.sections[i].name) {
			return fmt.Errorf("%q is repeated in section %q", s.sections[i].name, s.name)
		}
	}
	return nil
}

type vgParser struct {
	text string
	pos  int
	left int      // number of further names and values that are allowed
	slab []scalar // values of scalar entries, many to an allocation
}

// alone returns a list of one value.
func (p *vgParser) alone(v scalar) []scalar {
	if len(p.slab) == cap(p.slab) {
		p.slab = make([]scalar, 0, 256)
	}
	p.slab = append(p.slab, v)
	return p.slab[len(p.slab)-1 : len(p.slab) : len(p.slab)]
}

// parseText parses a whole metadata text.
func parseText(text string) (*section, error) {
	p := &vgParser{text: text, left: maxNodes}
	root := &section{}
	if err := p.body(root, 0); err != nil {
		return nil, fmt.Errorf("line %d of the metadata: %w", 1+strings.Count(text[:p.pos], "\n"), err)
	}
	return root, nil
}

// body parses entries and sections up to the closing brace, or up to the end of the text for the outermost section.
func (p *vgParser) body(s *section, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("sections are nested more than %d levels deep", maxDepth)
	}
	for {
		p.space()
		if p.pos == len(p.text) || p.text[p.pos] == '}' {
			closed := p.pos < len(p.text)
			if closed != (depth > 0) {
				return errors.New("braces do not match")
			}
			if closed {
				p.pos++
			}
			return s.unique()
		}
		name := p.name()
		if name == "" {
			return fmt.Errorf("a name was expected, not %q", p.text[p.pos])
		}
		if p.left--; p.left < 0 {
			return errTooMany
		}
		p.space()
		switch {
		case p.accept('{'):
			s.sections = append(s.sections, section{name: name})
			if err := p.body(&s.sections[len(s.sections)-1], depth+1); err != nil {
				return err
			}
		case p.accept('='):
			e, err := p.value(name)
			if err != nil {
				return err
			}
			if s.entries == nil {
				s.entries = make([]entry, 0, 8) // most have as many
			}
			s.entries = append(s.entries, e)
		default:
			return fmt.Errorf("expected = or { after %q", name)
		}
	}
}

func (p *vgParser) value(key string) (entry, error) {
	e := entry{key: key}
	p.space()
	if !p.accept('[') {
		v, err := p.scalar()
		e.values = p.alone(v)
		return e, err
	}
	e.list = true
	for {
		p.space()
		if p.accept(']') {
			return e, nil
		}
		v, err := p.scalar()
		if err != nil {
			return e, err
		}
		e.values = append(e.values, v)
		p.space()
		if !p.accept(',') {
			if !p.accept(']') {
				return e, fmt.Errorf("the list %q does not end", key)
			}
			return e, nil
		}
	}
}

var errTooMany = fmt.Errorf("more than %d names and values", maxNodes)

func (p *vgParser) scalar() (scalar, error) {
	if p.left--; p.left < 0 {
		return scalar{}, errTooMany
	}
	if p.accept('"') {
		text, err := p.quoted()
		return scalar{text: text, isText: true}, err
	}
	start := p.pos
	for p.pos < len(p.text) && (p.text[p.pos] == '-' || '0' <= p.text[p.pos] && p.text[p.pos] <= '9') {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[start:p.pos], 10, 64)
	if err != nil {
		return scalar{}, errors.New("expected a string or a whole number")
	}
	return scalar{number: n}, nil
}

// quoted parses a string after its opening quote; LVM escapes the quote and the backslash with a backslash.
func (p *vgParser) quoted() (string, error) {
	start := p.pos
	escaped := false
	for ; p.pos < len(p.text); p.pos++ {
		switch p.text[p.pos] {
		case '\\':
			escaped = true
			p.pos++
		case '"':
			text := p.text[start:p.pos]
			p.pos++
			if escaped {
				text = unescape(text)
			}
			return text, nil
		}
	}
	p.pos = len(p.text)
	return "", errors.New("a string does not end")
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (s[i+1] == '\\' || s[i+1] == '"') {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func (p *vgParser) name() string {
	start := p.pos
	for p.pos < len(p.text) && (lvm.IsAlnum(p.text[p.pos]) || strings.IndexByte("_+.-", p.text[p.pos]) >= 0) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *vgParser) accept(c byte) bool {
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// space skips white space and comments.
func (p *vgParser) space() {
	for p.pos < len(p.text) {
		switch p.text[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		case '#':
			end := strings.IndexByte(p.text[p.pos:], '\n')
			if end < 0 {
				end = len(p.text) - p.pos
			}
			p.pos += end
		default:
			return
		}
	}
}
