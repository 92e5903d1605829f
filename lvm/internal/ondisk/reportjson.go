package ondisk

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// reportGroup is LVM's report of one volume group: rows by their kind, "vg", "pv", "lv", "pvseg" and "seg".
type reportGroup map[string][]reportRow

// reportRow is a row, by column, in either of LVM's JSON formats: `json` writes every value as a string, `json_std` (since 2.03.17) some
// numbers as numbers and lists as arrays. A column that is absent has no value.
type reportRow map[string]any

func (r reportRow) text(column string) string {
	switch value := r[column].(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// list returns a list of strings, which `json` joins by commas.
func (r reportRow) list(column string) (list []string) {
	values, is := r[column].([]any)
	if joined := r.text(column); !is && joined != "" {
		return strings.Split(joined, ",")
	}
	for _, value := range values {
		text, _ := value.(string)
		list = append(list, text)
	}
	return list
}

func (r reportRow) number(column string) int64 {
	n, err := strconv.ParseInt(r.text(column), 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0) // -1: it does not apply
}

func (r reportRow) is(column string) bool { return r.number(column) == 1 }

func (r reportRow) bytes(column string) lvm.Bytes { return lvm.Bytes(r.number(column)) }

func (r reportRow) extents(column string) lvm.Extents { return lvm.Extents(r.number(column)) }

// moment returns a time in LVM's default format (lvm.conf, report/time_format); the zero time if it is unknown.
func (r reportRow) moment(column string) time.Time {
	t, err := time.Parse("2006-01-02 15:04:05 -0700", r.text(column))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
