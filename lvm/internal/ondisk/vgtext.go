package ondisk

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unsafe"

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
	left int // number of further names and values that are allowed
	*parsed
}

// parsed is the memory of the sections of one text. Texts share it one after the other: it would be garbage as soon as the text is imported.
type parsed struct {
	sections slab[section]
	entries  slab[entry]
	scalars  slab[scalar]
}

var parsedTexts = sync.Pool{New: func() any { return &parsed{} }}

// release ends the use of all sections of the text.
func (p *parsed) release() {
	p.sections.clear()
	p.entries.clear()
	p.scalars.clear()
	parsedTexts.Put(p)
}

// maxKept limits the memory that later texts use again: a text can have 32 MiB.
const maxKept = 1 << 20

// slab has lists of values. A list is open while its values are added, and then other lists may begin and end.
type slab[T any] struct{ open, closed []T }

// close ends the list that began when open had so many values.
func (s *slab[T]) close(began int) []T {
	list := s.open[began:]
	s.open = s.open[:began]
	if len(s.closed)+len(list) > cap(s.closed) {
		s.closed = make([]T, 0, max(256, len(list), 2*cap(s.closed))) // the lists in the former one keep it
	}
	s.closed = append(s.closed, list...)
	return s.closed[len(s.closed)-len(list) : len(s.closed) : len(s.closed)]
}

// clear forgets all lists, and the text of their values. It keeps the memory for one that is not much larger than usual.
func (s *slab[T]) clear() {
	if cap(s.open)+cap(s.closed) > maxKept/int(unsafe.Sizeof(*new(T))) {
		*s = slab[T]{}
		return
	}
	clear(s.open[:cap(s.open)])
	clear(s.closed)
	s.open, s.closed = s.open[:0], s.closed[:0]
}

// parseText parses a whole metadata text into memory that lasts until its release.
func parseText(text string, into *parsed) (*section, error) {
	p := &vgParser{text: text, left: maxNodes, parsed: into}
	root, err := p.body("", 0)
	if err != nil {
		return nil, fmt.Errorf("line %d of the metadata: %w", 1+strings.Count(text[:p.pos], "\n"), err)
	}
	return &root, nil
}

// body parses the entries and sections of a section up to its closing brace, or up to the end of the text for the outermost one.
func (p *vgParser) body(of string, depth int) (s section, err error) {
	if depth > maxDepth {
		return s, fmt.Errorf("sections are nested more than %d levels deep", maxDepth)
	}
	sections, entries := len(p.sections.open), len(p.entries.open)
	for {
		p.space()
		if p.pos == len(p.text) || p.text[p.pos] == '}' {
			closed := p.pos < len(p.text)
			if closed != (depth > 0) {
				return s, errors.New("braces do not match")
			}
			if closed {
				p.pos++
			}
			s = section{of, p.entries.close(entries), p.sections.close(sections)}
			return s, s.unique()
		}
		name := p.name()
		if name == "" {
			return s, fmt.Errorf("a name was expected, not %q", p.text[p.pos])
		}
		if p.left--; p.left < 0 {
			return s, errTooMany
		}
		p.space()
		switch {
		case p.accept('{'):
			inner, err := p.body(name, depth+1)
			if err != nil {
				return s, err
			}
			p.sections.open = append(p.sections.open, inner)
		case p.accept('='):
			e, err := p.value(name)
			if err != nil {
				return s, err
			}
			p.entries.open = append(p.entries.open, e)
		default:
			return s, fmt.Errorf("expected = or { after %q", name)
		}
	}
}

func (p *vgParser) value(key string) (e entry, err error) {
	began := len(p.scalars.open)
	p.space()
	if e.list = p.accept('['); e.list {
		err = p.list(key)
	} else {
		err = p.scalar()
	}
	e.key, e.values = key, p.scalars.close(began)
	return e, err
}

// list parses the values of a list after its opening bracket.
func (p *vgParser) list(key string) error {
	for {
		p.space()
		if p.accept(']') {
			return nil
		}
		if err := p.scalar(); err != nil {
			return err
		}
		p.space()
		if !p.accept(',') {
			if !p.accept(']') {
				return fmt.Errorf("the list %q does not end", key)
			}
			return nil
		}
	}
}

var errTooMany = fmt.Errorf("more than %d names and values", maxNodes)

// scalar parses a value into the open list.
func (p *vgParser) scalar() error {
	if p.left--; p.left < 0 {
		return errTooMany
	}
	if p.accept('"') {
		text, err := p.quoted()
		p.scalars.open = append(p.scalars.open, scalar{text: text, isText: true})
		return err
	}
	start := p.pos
	for p.pos < len(p.text) && (p.text[p.pos] == '-' || '0' <= p.text[p.pos] && p.text[p.pos] <= '9') {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[start:p.pos], 10, 64)
	if err != nil {
		return errors.New("expected a string or a whole number")
	}
	p.scalars.open = append(p.scalars.open, scalar{number: n})
	return nil
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
