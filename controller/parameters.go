package controller

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// parameters are the parsed parameters of a StorageClass.
type parameters struct {
	class lvm.Class // absent parameters are zero, except the layout; package lvm has the defaults
	mkfs  string    // not yet checked: the file system determines which options are allowed
}

// known has the parser of each parameter.
var known = map[string]func(p *parameters, value string) error{
	api.ParameterVolumeGroup:        func(p *parameters, v string) error { p.class.Group = v; return nil },
	api.ParameterLayout:             readLayout,
	api.ParameterWipe:               readWipe,
	api.ParameterStripes:            func(p *parameters, v string) (err error) { p.class.Stripes, err = parseCount(v); return err },
	api.ParameterStripeSize:         func(p *parameters, v string) (err error) { p.class.StripeSize, err = parseUnits(v); return err },
	api.ParameterMirrors:            func(p *parameters, v string) (err error) { p.class.Mirrors, err = parseCount(v); return err },
	api.ParameterThinPool:           readPool,
	api.ParameterOverprovisionRatio: func(p *parameters, v string) (err error) { p.class.Overprovision, err = parseFactor(v); return err },
	api.ParameterMkfsOptions:        func(p *parameters, v string) error { p.mkfs = v; return nil },
	api.ParameterEncryption:         readEncryption,
}

// parseParameters parses the parameters of a StorageClass. lvm.KindInvalid: an unknown key or value, so that the user learns of
// a typo. Package lvm checks which parameters a layout has.
func parseParameters(values map[string]string) (parameters, error) {
	p := parameters{class: lvm.Class{Layout: lvm.LayoutLinear}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		read, there := known[key]
		switch {
		case there:
			if err := read(&p, values[key]); err != nil {
				return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass' parameter %s is %q; %w", key, values[key], err)
			}
		case !strings.HasPrefix(key, api.ParameterPrefix):
			return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown parameter %q%s; known are %s",
				key, api.DidYouMean(key), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	if p.class.Group == "" {
		return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass does not name a volume group; "+
			"set the parameter %s to a volume group's name, or to \"@tag\" for any group with that LVM tag", api.ParameterVolumeGroup)
	}
	return p, nil
}

var layouts = []lvm.Layout{
	lvm.LayoutLinear, lvm.LayoutStriped, lvm.LayoutRAID1, lvm.LayoutRAID5, lvm.LayoutRAID6, lvm.LayoutRAID10, lvm.LayoutThin,
}

func readLayout(p *parameters, value string) error {
	p.class.Layout = lvm.Layout(value)
	if !slices.Contains(layouts, p.class.Layout) {
		return fmt.Errorf("it can be one of %q", layouts)
	}
	return nil
}

func readWipe(p *parameters, value string) error {
	p.class.Wipe = lvm.Wipe(value)
	if p.class.Wipe != lvm.WipeZero && p.class.Wipe != lvm.WipeNone {
		return fmt.Errorf("it can be %s (every byte is zeroed before its space is used again) or %s", lvm.WipeZero, lvm.WipeNone)
	}
	return nil
}

func readEncryption(p *parameters, value string) error {
	p.class.Encryption = lvm.Encryption(value)
	if p.class.Encryption != lvm.EncryptionLUKS2 {
		return fmt.Errorf("it can be %s; omit it for volumes without encryption", lvm.EncryptionLUKS2)
	}
	return nil
}

func readPool(p *parameters, value string) error {
	if value == "" {
		return fmt.Errorf("use a thin pool's name, or omit it for %s", lvm.DefaultPool)
	}
	p.class.Pool = value
	return nil
}

// parseCount parses a positive whole number; zero would mean "absent" to its callers.
func parseCount(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 1000 || value != strconv.Itoa(n) {
		return 0, fmt.Errorf("give a whole number, 1 or more")
	}
	return n, nil
}

var (
	unitPattern   = regexp.MustCompile(`^([1-9][0-9]{0,6})([kKmM])i?B?$`)
	factorPattern = regexp.MustCompile(`^([0-9]{1,3})(?:\.([0-9]{1,2}))?$`)
)

// parseUnits parses a size like 64Ki. It refuses a number without a unit: Kubernetes reads it as bytes, and lvcreate(8) as KiB.
func parseUnits(value string) (lvm.Bytes, error) {
	match := unitPattern.FindStringSubmatch(value)
	if match == nil {
		return 0, fmt.Errorf("give a number with its unit, like 64Ki or 1Mi")
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		return 0, err
	}
	if strings.EqualFold(match[2], "m") {
		return lvm.Bytes(n) * lvm.MiB, nil
	}
	return lvm.Bytes(n) * lvm.KiB, nil
}

// parseFactor parses a factor with at most two decimals, and returns it as a percentage: 150 for "1.5".
func parseFactor(value string) (int, error) {
	match := factorPattern.FindStringSubmatch(value)
	if match == nil {
		return 0, fmt.Errorf("give a factor from 1 to 100 with at most two decimals, like 1 or 1.5")
	}
	percent, err := strconv.Atoi(match[1] + (match[2] + "00")[:2])
	if err != nil {
		return 0, err
	}
	if percent < 100 || percent > 10000 {
		return 0, fmt.Errorf("give a factor from 1 (no overprovisioning) to 100")
	}
	return percent, nil
}

// claimOf returns the volume's claim, if the provisioner passes it (--extra-create-metadata).
func claimOf(values map[string]string) string {
	namespace, name := values[api.ParameterClaimNamespace], values[api.ParameterClaimName]
	if namespace == "" || name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}
