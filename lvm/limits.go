package lvm

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Rates are I/O per second, of reads and of writes; 0: no limit.
type Rates struct {
	ReadIOPS, WriteIOPS           int64 // requests
	ReadBandwidth, WriteBandwidth Bytes
}

// Limits are the limits of a volume's I/O, from the parameters of its VolumeAttributesClass (ParseLimits). A tag of the volume records
// them as they are in the class, so that they follow the volume's size. Limits is comparable; the zero value limits nothing. Of one rate,
// either Fixed or PerGiB has the limit.
type Limits struct {
	Fixed  Rates
	PerGiB Rates // for each GiB of the volume
}

// Ranges of limits. The kernel takes a larger number of requests for no limit, and refuses 0 (Documentation/admin-guide/cgroup-v2.rst,
// "io.max"). A lower limit than these stops a pod: the end of a container waits for what it has written.
const (
	MinIOPS      = 10
	MaxIOPS      = math.MaxUint32 - 1
	MinBandwidth = 64 * KiB
)

// rate is one of Rates. key is the kernel's word for it in io.max, which the tag has too.
type rate struct {
	key, name   string
	least, most int64
	unit        string
	in          func(*Rates) *int64
}

var rates = []rate{
	{"riops", "readIOPS", MinIOPS, MaxIOPS, "requests per second", func(r *Rates) *int64 { return &r.ReadIOPS }},
	{"wiops", "writeIOPS", MinIOPS, MaxIOPS, "requests per second", func(r *Rates) *int64 { return &r.WriteIOPS }},
	{"rbps", "readBandwidth", int64(MinBandwidth), math.MaxInt64, "bytes per second", func(r *Rates) *int64 { return (*int64)(&r.ReadBandwidth) }},
	{"wbps", "writeBandwidth", int64(MinBandwidth), math.MaxInt64, "bytes per second", func(r *Rates) *int64 { return (*int64)(&r.WriteBandwidth) }},
}

// String names the parameters with a limit, for messages; "none" without any.
func (l Limits) String() string {
	var words []string
	for _, r := range rates {
		if n := *r.in(&l.Fixed); n != 0 {
			words = append(words, r.name+": "+r.text(n))
		}
		if n := *r.in(&l.PerGiB); n != 0 {
			words = append(words, r.name+perGiB+": "+r.text(n))
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// text formats a limit for messages.
func (r rate) text(n int64) string {
	if r.least == int64(MinBandwidth) {
		return Bytes(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// perGiB ends the name of a parameter whose limit follows the volume's size, and perGiBTag its key in the tag.
const (
	perGiB    = "PerGiB"
	perGiBTag = "/GiB"
)

// At returns the limits of a volume of that size: at least the lowest of the range, and 0 where the limit is above it.
func (l Limits) At(size Bytes) Rates {
	now := l.Fixed
	for _, r := range rates {
		if each := *r.in(&l.PerGiB); each > 0 {
			*r.in(&now) = r.scaled(each, size)
		}
	}
	return now
}

func (r rate) scaled(each int64, size Bytes) int64 {
	high, low := bits.Mul64(uint64(each), uint64(max(0, size)))
	if high >= uint64(GiB) {
		return 0 // above any range
	}
	n, _ := bits.Div64(high, low, uint64(GiB))
	if n > uint64(r.most) {
		return 0
	}
	return max(int64(n), r.least)
}

// Rates returns the limits of the volume's I/O at its size.
func (v Volume) Rates() Rates { return v.Limits.At(v.Size) }

// check returns an error (KindInvalid) for limits outside of their ranges.
func (l Limits) check() error {
	for _, r := range rates {
		fixed, each := *r.in(&l.Fixed), *r.in(&l.PerGiB)
		switch {
		case fixed != 0 && each != 0:
			return Errorf(KindInvalid, "both %s and %s%s are given: remove one", r.name, r.name, perGiB)
		case fixed != 0 && (fixed < r.least || fixed > r.most):
			return Errorf(KindInvalid, "%s is %d; it can be from %d to %d %s", r.name, fixed, r.least, r.most, r.unit)
		case each < 0 || each > r.most:
			return Errorf(KindInvalid, "%s%s is %d; it can be from 1 to %d %s", r.name, perGiB, each, r.most, r.unit)
		}
	}
	return nil
}

// limitsTag is the beginning of the tag with a volume's limits: its value is as in "riops=100:wbps/GiB=1048576".
const limitsTag = TagPrefix + keyLimits + "="

// LimitsTag returns the tag that records limits; "" for none.
func LimitsTag(l Limits) string {
	var words []string
	for _, r := range rates {
		if n := *r.in(&l.Fixed); n != 0 {
			words = append(words, r.key+"="+strconv.FormatInt(n, 10))
		}
		if n := *r.in(&l.PerGiB); n != 0 {
			words = append(words, r.key+perGiBTag+"="+strconv.FormatInt(n, 10))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return limitsTag + strings.Join(words, ":")
}

// LimitsTags returns those of an LV's tags that record its limits: one at most, unless another program added some.
func LimitsTags(tags []string) (found []string) {
	for _, tag := range tags {
		if strings.HasPrefix(tag, limitsTag) {
			found = append(found, tag)
		}
	}
	return found
}

// decodeLimits decodes the value of LimitsTag.
func decodeLimits(value string) (l Limits, err error) {
	for word := range strings.SplitSeq(value, ":") {
		key, digits, _ := strings.Cut(word, "=")
		plain, each := strings.CutSuffix(key, perGiBTag)
		i := slices.IndexFunc(rates, func(r rate) bool { return r.key == plain })
		n, err := strconv.ParseInt(digits, 10, 64)
		if i < 0 || err != nil || n <= 0 {
			return Limits{}, fmt.Errorf("this version cannot interpret %q", word)
		}
		to := rates[i].in(&l.Fixed)
		if each {
			to = rates[i].in(&l.PerGiB)
		}
		if *to != 0 {
			return Limits{}, fmt.Errorf("it has two limits %s", key)
		}
		*to = n
	}
	return l, l.check()
}
