package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// fillerName returns a volume name in the provisioner's format. The driver uses such a name as the name of the logical volume, so
// a copy of the metadata under another name is another volume of the driver.
func fillerName(i int) string { return fmt.Sprintf("pvc-%08x-0000-4000-8000-000000000000", i) }

// fill adds volumes to the group, which has filler 0, until it has count. It restores metadata with copies of filler 0: that takes
// a second instead of minutes. Each copy is active, and has one extent of the first disk, from its end.
func (n *node) fill(ctx context.Context, count int) error {
	file := filepath.Join(n.scratch, "group.txt")
	if err := n.admin(ctx, "vgcfgbackup", "-qq", "-f", file, group); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filled, err := multiply(string(text), count)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(filled), 0o600); err != nil {
		return err
	}
	if err := n.admin(ctx, "vgcfgrestore", "-qq", "-y", "-f", file, group); err != nil {
		return err
	}
	return n.withoutUdev(ctx, func() error { return n.run(ctx, n.tuned("vgchange", "-qq", "-ay", group)) })
}

// withoutUdev calls do while udev is stopped: a thousand new devices would keep udev busy for minutes.
func (n *node) withoutUdev(ctx context.Context, do func() error) error {
	if err := n.admin(ctx, "udevadm", "control", "--exit"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return n.admin(ctx, "/lib/systemd/systemd-udevd", "--daemon")
}

var (
	fillerID      = regexp.MustCompile(`(?m)^(\s*id = )"[^"]*"`)
	fillerPlace   = regexp.MustCompile(`"(pv\d+)", \d+`)
	firstPVExtent = regexp.MustCompile(`(?s)pv0 \{.*?pe_count = (\d+)`)
)

// multiply copies the section of filler 0 in a group's metadata until there are count volumes.
func multiply(text string, count int) (string, error) {
	section := regexp.MustCompile(`(?ms)^\t\t` + fillerName(0) + ` \{\n.*?^\t\t\}\n`).FindString(text)
	extents := firstPVExtent.FindStringSubmatch(text)
	if section == "" || extents == nil {
		return "", fmt.Errorf("the group's text has no volume %s to copy, or no physical volume", fillerName(0))
	}
	last, err := strconv.Atoi(extents[1])
	if err != nil {
		return "", err
	}
	var copies strings.Builder
	for i := 1; i < count; i++ {
		s := strings.ReplaceAll(section, fillerName(0), fillerName(i))
		s = fillerID.ReplaceAllString(s, `${1}"`+newUUID()+`"`)
		s = fillerPlace.ReplaceAllString(s, fmt.Sprintf(`"pv0", %d`, last-i))
		copies.WriteString("\n" + s)
	}
	return strings.Replace(text, section, section+copies.String(), 1), nil
}

// newUUID returns a random UUID in LVM's notation.
func newUUID() string {
	raw := rand.Text() + rand.Text()
	return raw[:6] + "-" + raw[6:10] + "-" + raw[10:14] + "-" + raw[14:18] + "-" + raw[18:22] + "-" + raw[22:26] + "-" + raw[26:32]
}
