package lvm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/api"
)

// NoLimit is the value of a parameter of a VolumeAttributesClass for no limit, as in io.max. Kubernetes allows no class without
// parameters, and no claim that has a class to return to none.
const NoLimit = "max"

var quantityPattern = regexp.MustCompile(`^([0-9]{1,19})([kMGTPE]|[KMGTPE]i)?$`)

// quantityUnits are those of Kubernetes' quantities.
var quantityUnits = map[string]int64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// LimitParameters are the names of the parameters of a VolumeAttributesClass.
func LimitParameters() (names []string) {
	for _, r := range rates {
		names = append(names, r.name, r.name+perGiB)
	}
	return names
}

// ParseLimits parses the parameters of a VolumeAttributesClass. KindInvalid: an unknown parameter or an invalid value.
func ParseLimits(parameters map[string]string) (l Limits, err error) {
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if strings.HasPrefix(name, api.ParameterPrefix) {
			continue
		}
		plain, each := strings.CutSuffix(name, perGiB)
		i := slices.IndexFunc(rates, func(r rate) bool { return r.name == plain })
		if i < 0 {
			return Limits{}, unknownLimit(name)
		}
		to := rates[i].in(&l.Fixed)
		if each {
			to = rates[i].in(&l.PerGiB)
		}
		if *to, err = parseLimit(parameters[name]); err != nil {
			return Limits{}, Errorf(KindInvalid, "the VolumeAttributesClass' parameter %s is %.64q; %w", name, parameters[name], err)
		}
	}
	if err := l.check(); err != nil {
		return Limits{}, Errorf(KindInvalid, "the VolumeAttributesClass: %w", err)
	}
	return l, nil
}

func unknownLimit(name string) error {
	like := ""
	if nearest := nearestOf(name, LimitParameters()); nearest != "" {
		like = " (did you mean " + nearest + "?)"
	}
	return Errorf(KindInvalid, "the VolumeAttributesClass has the unknown parameter %.64q%s; known are %s", name, like, strings.Join(slices.Sorted(slices.Values(LimitParameters())), ", "))
}

func parseLimit(text string) (int64, error) {
	if text == NoLimit {
		return 0, nil
	}
	match := quantityPattern.FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("give a whole number, alone or with a unit, like 500, 10k or 100Mi, or %s for no limit", NoLimit)
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	unit := quantityUnits[match[2]]
	switch {
	case err != nil || n*unit/unit != n:
		return 0, fmt.Errorf("it is too large; give %s for no limit", NoLimit)
	case n == 0:
		return 0, fmt.Errorf("nothing could be read or written; give %s for no limit", NoLimit)
	}
	return n * unit, nil
}
