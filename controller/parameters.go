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

// parameters are a StorageClass' parameters, read.
type parameters struct {
	class lvm.Class // what is not said is zero, but for the layout; lvm knows the defaults
	claim string    // whose claim the volume is for: "namespace/name", empty where the caller does not say
	mkfs  string    // not yet checked: what is allowed depends on the file system
}

// known tells how each parameter is read.
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

// parseParameters reads a StorageClass' parameters. A key or a value that is not known is lvm.KindInvalid: a typo must
// not be silent. Which parameters a layout has is lvm's to say.
func parseParameters(values map[string]string) (parameters, error) {
	p := parameters{class: lvm.Class{Layout: lvm.LayoutLinear}, claim: claimOf(values)}
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

// parseCount reads a positive whole number: zero would look like "not said" from here on.
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

// parseUnits reads a size like 64Ki. A bare number is refused: it is bytes to Kubernetes and KiB to lvcreate(8).
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

// parseFactor reads a factor of at most two decimals as a percentage: "1.5" is 150.
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

// claimOf names the claim that the volume is for, where the provisioner tells (--extra-create-metadata).
func claimOf(values map[string]string) string {
	namespace, name := values[api.ParameterClaimNamespace], values[api.ParameterClaimName]
	if namespace == "" || name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}
