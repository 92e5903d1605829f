package ondisk

import (
	"fmt"
)

// fields reads typed values from a section of metadata and keeps the first error, so that a caller checks once.
type fields struct {
	section *section
	err     error
	unknown string // the first unknown flag, in words
}

func (f *fields) fail(key, wanted string) {
	if f.err == nil {
		f.err = fmt.Errorf("%q of %s is not %s", key, f.section.name, wanted)
	}
}

func (f *fields) text(key string) string {
	e := f.section.entry(key)
	if e == nil || e.list || !e.values[0].isText {
		f.fail(key, "there as a string")
		return ""
	}
	return e.values[0].text
}

// optional returns "" if the key is absent.
func (f *fields) optional(key string) string {
	if f.section.entry(key) == nil {
		return ""
	}
	return f.text(key)
}

func (f *fields) uuid(key string) string {
	id := f.text(key)
	if !IsUUID(id) {
		f.fail(key, "a UUID")
	}
	return id
}

// number returns a whole number from 0 to limit.
func (f *fields) number(key string, limit int64) int64 {
	e := f.section.entry(key)
	if e == nil || e.list || e.values[0].isText || e.values[0].number < 0 || e.values[0].number > limit {
		f.fail(key, fmt.Sprintf("there as a number of 0 to %d", limit))
		return 0
	}
	return e.values[0].number
}

// optionalNumber returns 0 if the key is absent.
func (f *fields) optionalNumber(key string, limit int64) int64 {
	if f.section.entry(key) == nil {
		return 0
	}
	return f.number(key, limit)
}

// strings returns a list of strings; nil if the key is absent.
func (f *fields) strings(key string) []string {
	e := f.section.entry(key)
	if e == nil || e.list && len(e.values) == 0 {
		return nil
	}
	list := make([]string, 0, len(e.values))
	for _, v := range e.values {
		if !v.isText || !e.list {
			f.fail(key, "a list of strings")
			return nil
		}
		list = append(list, v.text)
	}
	return list
}

func (f *fields) tags() []string { return f.strings("tags") }

// flags returns a list of words, and notes one that is not known; if known is nil, any word is.
func (f *fields) flags(key string, known map[string]bool) []string {
	list := f.strings(key)
	for _, flag := range list {
		if known != nil && !known[flag] {
			f.unknown = fmt.Sprintf("the flag %q in %q of %s", flag, key, f.section.name)
		}
	}
	return list
}
