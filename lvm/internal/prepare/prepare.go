package prepare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/thinpool"
)

// Preparer creates and extends the declared volume groups.
type Preparer struct {
	engine  *engine.Engine
	tasks   *oplock.Tasks
	pools   *thinpool.Manager
	running sync.Mutex                  // held by prepare
	blank   map[ondisk.BlockDevice]bool // found by the last scan
	record  *ondisk.Disks               // records the disks that the groups get; without a record it does nothing
	// uuids are of the physical volumes that the driver has recorded. A retry uses the same one: each more is one more entry of the record, which drops
	// the first if it has too many.
	uuids map[ondisk.BlockDevice]string
}

func New(e *engine.Engine, tasks *oplock.Tasks, pools *thinpool.Manager, record *ondisk.Disks) *Preparer {
	return &Preparer{engine: e, tasks: tasks, pools: pools, record: record, uuids: map[ondisk.BlockDevice]string{}}
}

// Prepare implements Host.Prepare.
func (r *Preparer) Prepare(ctx context.Context, p lvm.Preparation) (lvm.PrepareReport, error) {
	declared, err := lvm.CheckDeclarations(p.Declared)
	if err != nil {
		return lvm.PrepareReport{}, err
	}
	r.pools.Declare(declared)
	leave, err := r.tasks.Join()
	if err != nil {
		return lvm.PrepareReport{}, err
	}
	defer leave()
	r.running.Lock()
	defer r.running.Unlock()
	node := ondisk.DeviceScanner{Positions: ondisk.Positions{Sys: "/sys", Proc: "/proc", Dev: "/dev"}, Reader: r.record}
	s, disks, err := r.scan(ctx, node)
	if err != nil {
		return lvm.PrepareReport{}, err
	}
	if !p.DryRun && r.acceptDeclared(ctx, declared, disks) {
		if s, disks, err = r.scan(ctx, node); err != nil {
			return lvm.PrepareReport{}, err
		}
	}
	run := preparing{Preparer: r, Preparation: p, where: node.Positions, state: s, disks: disks, reports: map[string]string{}, held: map[string]string{}, blank: map[ondisk.BlockDevice]bool{}}
	var report lvm.PrepareReport
	for _, d := range declared {
		report.Groups = append(report.Groups, run.group(ctx, d))
	}
	r.blank = run.blank
	for _, d := range disks {
		text := run.reports[d.Path]
		switch {
		case text != "":
		case d.MadeOf != ondisk.MadeOfDisks:
			continue // on a volume, or reported in State.Skipped
		case d.Group != "":
			text = "belongs to volume group " + string(d.Group)
		default:
			text = "skipped: no declared volume group selects it"
		}
		report.Devices = append(report.Devices, lvm.DeviceReport{Path: d.Path, Size: d.Size, Text: text})
	}
	return report, nil
}

// scan reads the groups, and then the node's devices.
func (r *Preparer) scan(ctx context.Context, node ondisk.DeviceScanner) (lvm.State, []ondisk.Disk, error) {
	s, err := r.engine.ReadDisks(ctx)
	if err != nil {
		return lvm.State{}, nil, err
	}
	disks, err := node.Disks(ctx, s)
	return s, disks, err
}

// acceptDeclared records the physical volumes whose devices a declaration names.
func (r *Preparer) acceptDeclared(ctx context.Context, declared []lvm.Declaration, disks []ondisk.Disk) (some bool) {
	for _, d := range disks {
		if !d.IsUnaccepted() || !slices.ContainsFunc(declared, func(g lvm.Declaration) bool { return namesHardware(g, d) }) {
			continue
		}
		if _, err := r.record.AcceptDevice(ctx, d.Path, accepted.Declared); err != nil {
			r.engine.Log.Warn("cannot accept the physical volume on a declared device", "error", err)
			continue
		}
		some = true
	}
	return some
}

// preparing is one run of prepare.
type preparing struct {
	lvm.Preparation
	*Preparer
	where   ondisk.Positions
	state   lvm.State
	disks   []ondisk.Disk
	reports map[string]string // the reported text, by device path
	held    map[string]string // what a device holds that is not blank, by path
	blank   map[ondisk.BlockDevice]bool
	pins    []*os.File // open files of the devices that the group gets: no other device can get their numbers and names
}

// unpin closes the devices of a group.
func (p *preparing) unpin() {
	for _, pin := range p.pins {
		_ = pin.Close()
	}
	p.pins = nil
}

// group creates or extends one group as declared.
func (p *preparing) group(ctx context.Context, d lvm.Declaration) lvm.GroupReport {
	defer p.unpin()
	r := lvm.GroupReport{Name: d.Name}
	here, err := p.standing(d.Name)
	if here == nil && err == nil {
		err = p.mayBeIgnored(d)
	}
	taken := p.labelSelected(ctx, d, here, err)
	missing := d.Tags
	if here != nil {
		missing = slices.DeleteFunc(slices.Clone(d.Tags), func(tag string) bool { return slices.Contains(here.Tags, tag) })
	}
	r.Changed = len(taken) > 0 || here != nil && len(missing) > 0
	switch {
	case err != nil:
		r.Err, r.Changed = err, false
		return r
	case here == nil && len(taken) == 0:
		if r.Err = p.notBlank(d, false); r.Err == nil {
			r.Text = "not created: this node has no blank device that it selects"
		}
		return r
	case p.DryRun:
		r.Text = outlook(here, taken, missing)
		return p.pool(ctx, d, here, r)
	case r.Changed:
		if err := p.join(ctx, d, here, taken, missing); err != nil {
			r.Err = err
			return r
		}
		if here, err = p.standing(d.Name); err != nil || here == nil {
			r.Err = lvm.Errorf(lvm.KindInternal, "created, but the driver cannot find it: %w", engine.OrNoEffect(err))
			return r
		}
	}
	r.Text = fmt.Sprintf("%s, %s free", deviceCount(len(here.PVs)), here.Bytes(here.FreeExtents()))
	if len(taken) > 0 {
		r.Text += fmt.Sprintf("; %s added now", deviceCount(len(taken)))
	}
	if r = p.pool(ctx, d, here, r); r.Err == nil {
		if r.Err = p.notBlank(d, true); r.Err != nil {
			r.Text = ""
		}
	}
	return r
}

// mayBeIgnored refuses to create a group that may exist on a device that the group selects and the driver ignores.
func (p *preparing) mayBeIgnored(d lvm.Declaration) error {
	for _, candidate := range p.disks {
		selected, _ := declarationMatches(d, candidate)
		if selected && slices.ContainsFunc(p.state.Unaccepted, func(u lvm.UnacceptedPV) bool { return u.Device == candidate.Path }) {
			return lvm.Errorf(lvm.KindConflict, "not created, because it may be on %s, which it selects and which has a physical volume that the node does not accept: run nodelvm disks accept %s, or remove the device from the declaration",
				candidate.Path, candidate.Path)
		}
	}
	return nil
}

// notBlank returns an error that names the devices that the group selects and that hold something; nil: there are none. namedAlone leaves
// out those that only a pattern selects: it may well match the node's own disks.
func (p *preparing) notBlank(d lvm.Declaration, namedAlone bool) error {
	var list []string
	for _, candidate := range p.disks {
		selected, named := declarationMatches(d, candidate)
		if why := p.held[candidate.Path]; selected && why != "" && (named || !namedAlone) {
			list = append(list, candidate.Path+": "+why)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return lvm.Errorf(lvm.KindConflict, "the driver uses only blank devices, and the declaration selects %s. Remove such a device from the declaration. Or, if nothing uses it and you do not need its data, make it blank: wipefs -a, and zeros in its first two MiB and its last",
		strings.Join(list, "; "))
}

// outlook describes what a dry run found.
func outlook(here *lvm.Group, taken []ondisk.Disk, tags []string) string {
	switch {
	case here == nil:
		return "would be created from " + deviceCount(len(taken))
	case len(taken) > 0:
		return "would get " + deviceCount(len(taken)) + " more"
	case len(tags) > 0:
		return "would get the tags " + strings.Join(tags, ", ")
	}
	return fmt.Sprintf("%s, nothing to do", deviceCount(len(here.PVs)))
}

// standing finds the group; nil if Prepare may create it. An error explains why Prepare must not change it: it is unusable, or
// it may exist where the driver cannot see it.
func (p *preparing) standing(name lvm.VGName) (*lvm.Group, error) {
	for i, g := range p.state.Groups {
		if g.Name == name {
			return &p.state.Groups[i], lvm.CheckWritable(p.state, g)
		}
	}
	if len(p.state.UnreadDevices) > 0 {
		return nil, lvm.Errorf(lvm.KindBusy, "not created, because it may be on a disk that cannot be read: %s", strings.Join(p.state.UnreadDevices, "; "))
	}
	if p.engine.Config.BackupDir == "" {
		return nil, nil
	}
	backup := filepath.Join(p.engine.Config.BackupDir, string(name))
	switch _, err := os.Lstat(backup); {
	case err == nil:
		return nil, lvm.Errorf(lvm.KindConflict, "it was on this node before, and its disks are missing: reconnect them; if its data is lost, remove %s, and the driver creates it again", backup)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, lvm.Errorf(lvm.KindBusy, "not created, because the driver cannot determine whether it was on this node before: %w", err)
	}
	return nil, nil
}

// labelSelected selects the devices for a group and labels them as physical volumes. It records a text for each device that the group
// selects. refused is why the group can take none.
func (p *preparing) labelSelected(ctx context.Context, d lvm.Declaration, here *lvm.Group, refused error) []ondisk.Disk {
	var taken []ondisk.Disk
	members := 0
	if here != nil {
		members = len(here.PVs)
	}
	for _, candidate := range p.disks {
		selected, named := declarationMatches(d, candidate)
		if !selected || p.reports[candidate.Path] != "" || candidate.Group == d.Name {
			continue
		}
		why := candidate.IneligibleReason(named)
		switch {
		case why != "" && named:
			p.held[candidate.Path] = why
		case why != "":
		case refused != nil:
			why = fmt.Sprintf("volume group %s, which selects it, cannot be extended now", d.Name)
		case d.MaxDevices > 0 && members+len(taken) >= d.MaxDevices:
			why = fmt.Sprintf("volume group %s already has %s (maxDevices)", d.Name, deviceCount(d.MaxDevices))
		default:
			if why = p.mixed(d.Name, taken, candidate); why == "" {
				why = p.label(ctx, d, here, candidate)
			}
		}
		if why != "" {
			p.reports[candidate.Path] = "ignored: " + why
			continue
		}
		p.reports[candidate.Path] = "is blank: would be added to volume group " + string(d.Name)
		taken = append(taken, candidate)
	}
	return taken
}

// mixed explains why LVM would refuse a device next to those of the group and those taken for it: LVM does not mix logical
// block sizes, except in a group that has several already. It would refuse all of the devices then.
func (p *preparing) mixed(group lvm.VGName, taken []ondisk.Disk, candidate ondisk.Disk) string {
	sizes := map[lvm.Bytes]bool{}
	for _, d := range p.disks {
		sizes[d.Block] = sizes[d.Block] || d.Group == group
	}
	for _, d := range taken {
		sizes[d.Block] = true
	}
	var have []lvm.Bytes
	for size, is := range sizes {
		if is && size > 0 {
			have = append(have, size)
		}
	}
	if len(have) != 1 || candidate.Block == 0 || candidate.Block == have[0] {
		return ""
	}
	return fmt.Sprintf("its blocks have %s, those of volume group %s %s, and LVM does not mix them: declare another group for such disks, and select each kind by paths or model", candidate.Block, group, have[0])
}

// label makes a blank device a physical volume; otherwise why explains why not. The driver holds the device exclusively until
// just before LVM, which checks signatures again and opens it exclusively too, starts.
func (p *preparing) label(ctx context.Context, d lvm.Declaration, here *lvm.Group, candidate ondisk.Disk) (why string) {
	held, refusal := candidate.OpenExclusive(p.where)
	if refusal != "" {
		p.held[candidate.Path] = refusal
		return refusal
	}
	pin, err := os.Open(candidate.Path)
	if err != nil {
		held.Release()
		return fmt.Sprintf("the driver cannot open it: %v", err)
	}
	p.pins = append(p.pins, pin)
	made := held.Unfinished(candidate, d.Name, here)
	if !made {
		why = held.Content(ctx, candidate, p.Signatures)
		p.held[candidate.Path] = why
	}
	held.Release()
	if !made && why == "" {
		p.blank[candidate.BlockDevice] = true
		if p.RequireStableScan && !p.Preparer.blank[candidate.BlockDevice] {
			return "blank; will be added if still blank at the next scan, because another program may be about to write to it"
		}
	}
	if why != "" || p.DryRun {
		return why
	}
	return p.take(ctx, candidate, made)
}

// take makes a blank device a physical volume, unless an earlier run has, and flushes it.
func (p *preparing) take(ctx context.Context, candidate ondisk.Disk, made bool) (why string) {
	if !made {
		if why = p.create(ctx, candidate); why != "" {
			return why
		}
	}
	// Before any disk gets the group's commit: after a power cut the group would lack a disk whose label never reached it.
	if err := p.engine.Machine.Kernel.Sync([]string{candidate.Path}); err != nil {
		return fmt.Sprintf("it was blank and is now a physical volume, but the driver cannot flush it (%v); the next scan continues with it", err)
	}
	return ""
}

// create makes a blank device a physical volume.
func (p *preparing) create(ctx context.Context, candidate ondisk.Disk) (why string) {
	uuid := cmp.Or(p.uuids[candidate.BlockDevice], ondisk.NewPVUUID())
	p.uuids[candidate.BlockDevice] = uuid
	if _, err := p.record.Vouch(candidate.BlockDevice, uuid, accepted.Prepared); err != nil { // before it exists: the next run recognizes it
		return fmt.Sprintf("blank, but the driver cannot record that it uses it: %v", err)
	}
	// This command concerns no group: pvcreate takes its own lock file.
	if err := p.engine.Run(ctx, lvm.Group{}, []lvmcmd.Step{{Argv: lvmcmd.PVCreateArgs(candidate, uuid)}}); err != nil {
		return fmt.Sprintf("blank, but LVM refused it: %v", err)
	}
	delete(p.uuids, candidate.BlockDevice) // whoever wipes it has another physical volume next
	return ""
}

// deviceCount formats a number of devices.
func deviceCount(n int) string {
	if n == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", n)
}
