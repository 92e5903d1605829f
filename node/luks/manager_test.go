package luks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

var errKilled = errors.New("killed")

// oneKey and rotated are Secrets before and during a rotation.
var (
	oneKey  = map[string]string{"key": random1}
	rotated = map[string]string{"key": random2, "previousKey": random1}
)

// fake is a node with one logical volume. It models the header as the key of each slot.
type fake struct {
	Observation
	slots    map[int]string
	log      []string
	killAt   int // number of the change at which the driver is killed; 0: none
	after    bool
	keepSlot bool // luksKillSlot succeeds without effect
}

func newFake() *fake {
	return &fake{Observation: Observation{Number: subjectNumber, Size: lvm.GiB, Logical: 512}}
}

// change calls do, unless the driver is killed before this change.
func (f *fake) change(what string, do func()) error {
	f.log = append(f.log, what)
	if f.killAt--; f.killAt == 0 && !f.after {
		return errKilled
	}
	do()
	if f.killAt == 0 {
		return errKilled
	}
	return nil
}

func (f *fake) lock(context.Context, string) (*os.File, error) { return nil, nil }

func (f *fake) observe(Volume) (Observation, error) {
	o := f.Observation
	o.Header.Slots = nil
	for _, number := range slices.Sorted(maps.Keys(f.slots)) {
		o.Header.Slots = append(o.Header.Slots, Slot{Number: number, Bound: true, Function: "pbkdf2"})
	}
	return o, nil
}

func (f *fake) writeMark(_ Volume, m Mark) error {
	return f.change("mark "+strconv.Itoa(int(m)), func() { f.Mark = m })
}

func (f *fake) ensureName(string, Mapping) error { return nil }

func (f *fake) clearMapping(Mapping) error { return f.change("clear", func() {}) }

func (f *fake) removeMapping(context.Context, string) error {
	if !f.Mapping.Exists {
		return nil
	}
	return f.change("close", func() { f.Mapping = Mapping{} })
}

func (f *fake) destroySlots(Volume) error {
	return f.change("destroy", func() { f.Header, f.slots = Header{}, nil })
}

func (f *fake) mapping(string) (Mapping, error) { return f.Mapping, nil }

func (f *fake) mappings() ([]string, error) { return []string{subject.name}, nil }

func (f *fake) suspend(_ string, stop bool) error {
	return f.change(fmt.Sprintf("suspend %t", stop), func() { f.Mapping.Suspended = stop })
}

func (f *fake) cryptsetup(_ context.Context, _ *os.File, args []string, keys ...*Key) error {
	key := ""
	if len(keys) > 0 {
		key = string(keys[0].secret)
	}
	name := args[0]
	if slices.Contains(args, "--test-passphrase") {
		name = "test"
	}
	if name != "luksFormat" && name != "luksUUID" && !f.accepts(args, key) {
		f.log = append(f.log, name+" wrong key")
		return lvm.Errorf(lvm.KindInternal, "%w", &exitError{name: name, code: exitWrongKey})
	}
	if name == "test" {
		f.log = append(f.log, name)
		return nil
	}
	return f.change(name, func() { f.act(name, args, keys) })
}

// accepts reports whether the key opens the requested slot, or for luksKillSlot another one.
func (f *fake) accepts(args []string, key string) bool {
	for number, secret := range f.slots {
		wanted := true
		for _, arg := range args {
			if slot, is := strings.CutPrefix(arg, "--key-slot="); is {
				wanted = slot == strconv.Itoa(number)
			}
		}
		if secret == key && wanted && (args[0] != "luksKillSlot" || args[len(args)-1] != strconv.Itoa(number)) {
			return true
		}
	}
	return false
}

func (f *fake) act(name string, args []string, keys []*Key) {
	switch name {
	case "luksFormat":
		f.Header, f.slots = valid(), map[int]string{0: string(keys[0].secret)}
	case "luksUUID":
		f.Header.UUID = subject.headerUUID
	case "open", "resize":
		f.Mapping = open(f.Size - lvm.LUKSHeaderSize)
	case "luksAddKey":
		for n := 0; ; n++ {
			if _, used := f.slots[n]; !used {
				f.slots[n] = string(keys[1].secret)
				return
			}
		}
	case "luksKillSlot":
		number, _ := strconv.Atoi(args[len(args)-1])
		if !f.keepSlot {
			delete(f.slots, number)
		}
	}
}

func (f *fake) manager() *Manager {
	m := New(nil)
	m.machine = f
	return m
}

func (f *fake) request(secret map[string]string) Request {
	keys, err := ParseSecret(secret)
	if err != nil {
		panic(err)
	}
	return Request{Volume: subject, Keys: keys, Blank: func(context.Context) error { f.log = append(f.log, "prove"); return nil }}
}

func stageWith(t *testing.T, m *Manager, r Request) {
	t.Helper()
	if _, err := m.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func unstage(t *testing.T, m *Manager) {
	t.Helper()
	must(t, m.Unstage(t.Context(), subject.Handle))
}

func (f *fake) expect(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(f.log, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.log = nil
}

func TestStage(t *testing.T) {
	f := newFake()
	r := f.request(oneKey)
	device, err := f.manager().Stage(t.Context(), r)
	if err != nil || device != "/dev/dm-4" {
		t.Fatalf("%s, %v", device, err)
	}
	f.expect(t, "prove, mark 1, prove, luksFormat, open, clear, mark 2")
	stageWith(t, f.manager(), r)
	f.expect(t, "")
	unstage(t, f.manager())
	stageWith(t, f.manager(), r)
	f.expect(t, "close, open")
}

func TestStageOfADeviceThatIsNotBlank(t *testing.T) {
	f := newFake()
	r := f.request(oneKey)
	r.Blank = func(context.Context) error { return lvm.Errorf(lvm.KindConflict, "ext4") }
	if _, err := f.manager().Stage(t.Context(), r); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("%v", err)
	}
	r.Blank = nil
	if _, err := f.manager().Stage(t.Context(), r); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("%v", err)
	}
	f.expect(t, "")
}

// TestStageAfterAKilledFormat: Stage formats the remains of an interrupted luksFormat again, and no other content.
func TestStageAfterAKilledFormat(t *testing.T) {
	for _, remains := range []bool{false, true} {
		f := newFake()
		f.Mark, f.Header.Remains = MarkFormatting, remains
		r := f.request(oneKey)
		r.Blank = func(context.Context) error { return lvm.Errorf(lvm.KindConflict, "data of an unknown kind") }
		if _, err := f.manager().Stage(t.Context(), r); (err == nil) != remains {
			t.Errorf("remains of a header %t: %v", remains, err)
		}
	}
}

// TestStageKilledAtEachChange: a second call completes the first one, at whichever change the driver was killed.
func TestStageKilledAtEachChange(t *testing.T) {
	for name, test := range map[string]struct {
		begin  func(f *fake)
		secret map[string]string
	}{
		"format": {func(*fake) {}, oneKey},
		"copy":   {func(f *fake) { f.Header, f.slots = valid(), map[int]string{0: random1}; f.Header.UUID = "origin" }, oneKey},
		"moved in a format": {func(f *fake) {
			f.Header, f.slots, f.Other = valid(), map[int]string{0: random1}, true
			f.Header.UUID = "origin"
		}, oneKey},
		"rotation": {func(f *fake) {
			f.Header, f.slots, f.Mark = valid(), map[int]string{0: random1, 5: "an admin's"}, MarkFormatted
		}, rotated},
		"open, small": {func(f *fake) {
			f.Header, f.slots, f.Mapping = valid(), map[int]string{0: random1}, open(lvm.MiB)
		}, oneKey},
		"unfinished open": {func(f *fake) {
			f.Header, f.slots, f.Mapping = valid(), map[int]string{0: random1}, Mapping{Exists: true}
		}, oneKey},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				ended := false
				for _, after := range []bool{false, true} {
					f := newFake()
					test.begin(f)
					f.killAt, f.after = n, after
					r := f.request(test.secret)
					r.Moved = name == "moved in a format"
					r.Copied = r.Moved || name == "copy"
					_, err := f.manager().Stage(t.Context(), r)
					if ended = err == nil; ended {
						break
					}
					f.expectRecovery(t, fmt.Sprintf("killed at change %d, %t", n, after), r, err)
				}
				if ended {
					if n == 1 {
						t.Error("nothing was changed")
					}
					return
				}
			}
		})
	}
}

func (f *fake) expectRecovery(t *testing.T, when string, r Request, killed error) {
	t.Helper()
	opened := len(f.slots) == 0 && f.Mark != MarkFormatted
	for _, secret := range f.slots {
		opened = opened || secret == random1 || secret == random2
	}
	if !errors.Is(killed, errKilled) || !opened {
		t.Fatalf("%s: %v, slots %v", when, killed, f.slots)
	}
	f.killAt = 0
	if _, err := f.manager().Stage(t.Context(), r); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	current := 0
	for _, secret := range f.slots {
		if secret == string(r.Keys.Current.secret) {
			current++
		}
		if r.Keys.Previous != nil && secret == string(r.Keys.Previous.secret) {
			t.Errorf("%s: the previous key still opens the volume", when)
		}
	}
	if current != 1 || !f.Mapping.Live || f.Header.UUID != subject.headerUUID || f.Mark == MarkFormatting {
		t.Errorf("%s: %+v, slots %v", when, f.Observation, f.slots)
	}
}

func TestRotation(t *testing.T) {
	f := newFake()
	f.Header, f.slots, f.Mark = valid(), map[int]string{0: random1}, MarkFormatted
	both := f.request(rotated)
	m := f.manager()
	stageWith(t, m, both)
	f.expect(t, "open wrong key, open, test wrong key, test, luksAddKey, test, luksKillSlot")
	unstage(t, m)
	f.log = nil
	stageWith(t, m, both)
	f.expect(t, "open") // a previous key that stays in the Secret causes no command
	f.slots[3], f.keepSlot = random1, true
	if _, err := m.Stage(t.Context(), both); lvm.KindOf(err) != lvm.KindInternal || !strings.Contains(fmt.Sprint(err), "still has key slot 3") {
		t.Errorf("%v", err)
	}
}

func TestWrongKey(t *testing.T) {
	f := newFake()
	f.Header, f.slots = valid(), map[int]string{0: "another"}
	for words, secret := range map[string]map[string]string{
		"the key in the Secret does not open volume vg/pvc-1":                      {"key": random1},
		"neither the key nor the previous key in the Secret opens volume vg/pvc-1": {"key": random1, "previousKey": random2},
	} {
		_, err := f.manager().Stage(t.Context(), f.request(secret))
		if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(fmt.Sprint(err), words) || strings.Contains(fmt.Sprint(err), random1) {
			t.Errorf("%v", err)
		}
	}
	f.Mapping = open(f.Size - lvm.LUKSHeaderSize) // opened by an earlier Secret
	if _, err := f.manager().Stage(t.Context(), f.request(map[string]string{"key": random1, "previousKey": random2})); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("%v", err)
	}
}

// TestExpandRotates: an expansion replaces the previous key of a volume that is in use.
func TestExpandRotates(t *testing.T) {
	f := newFake()
	m := f.manager()
	stageWith(t, m, f.request(oneKey))
	f.log = nil
	both := f.request(rotated)
	if _, _, err := m.Expand(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	if len(f.slots) != 1 || !slices.Contains(slices.Collect(maps.Values(f.slots)), random2) {
		t.Errorf("the key slots are opened by %v", f.slots)
	}
	wrong := f.request(map[string]string{"key": random1, "previousKey": strings.Repeat("0123456789abcdef", 4)})
	if _, _, err := m.Expand(t.Context(), wrong); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("neither key opens a slot: %v", err)
	}
}

func TestExpand(t *testing.T) {
	f := newFake()
	m := f.manager()
	r := f.request(oneKey)
	if _, _, err := m.Expand(t.Context(), r); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("a volume that is not open: %v", err)
	}
	stageWith(t, m, r)
	f.Size, f.log = 2*lvm.GiB, nil
	keyless := r
	keyless.Keys = Keys{}
	if _, _, err := m.Expand(t.Context(), keyless); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("without a key: %v", err)
	}
	if device, size, err := m.Expand(t.Context(), r); err != nil || size != 2*lvm.GiB-lvm.LUKSHeaderSize || device != "/dev/dm-4" {
		t.Errorf("%s of %s, %v", device, size, err)
	}
	if _, _, err := m.Expand(t.Context(), keyless); err != nil {
		t.Errorf("a repetition needs no key: %v", err)
	}
	f.expect(t, "resize")
	f.Mark = MarkFormatting
	if _, _, err := m.Expand(t.Context(), r); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("during a format: %v", err)
	}
}

func TestEraseKilledAtEachChange(t *testing.T) {
	for n := 1; ; n++ {
		for _, after := range []bool{false, true} {
			f := newFake()
			f.Header, f.slots, f.Mark, f.Mapping = valid(), map[int]string{0: random1}, MarkFormatted, open(f.Size-lvm.LUKSHeaderSize)
			f.killAt, f.after = n, after
			err := f.manager().Erase(t.Context(), subject)
			if err == nil {
				if n != 4 {
					t.Errorf("%d changes", n-1)
				}
				return
			}
			f.killAt = 0
			if err := f.manager().Erase(t.Context(), subject); err != nil {
				t.Fatalf("killed at change %d: %v", n, err)
			}
			_, err = f.manager().Stage(t.Context(), f.request(oneKey))
			if f.slots != nil || lvm.KindOf(err) != lvm.KindConflict {
				t.Errorf("killed at change %d: slots %v, staging answers %v", n, f.slots, err)
			}
		}
	}
}

func TestEraseRefuses(t *testing.T) {
	f := newFake()
	f.Holders = []string{"admins"}
	if err := f.manager().Erase(t.Context(), subject); lvm.KindOf(err) != lvm.KindInUse {
		t.Errorf("%v", err)
	}
	f.Holders, f.Size = nil, lvm.LUKSHeaderSize
	if err := f.manager().Erase(t.Context(), subject); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("%v", err)
	}
	f.expect(t, "")
}

func TestCheck(t *testing.T) {
	f := newFake()
	f.Header, f.slots, f.Mark = valid(), map[int]string{0: random1, 1: random2}, MarkFormatted
	for name, test := range map[string]struct {
		change func()
		says   string // "": no problem
	}{
		"closed":    {func() {}, ""},
		"open":      {func() { f.Mapping = open(f.Size - lvm.LUKSHeaderSize) }, ""},
		"suspended": {func() { f.Mapping = open(0); f.Mapping.Suspended = true }, ""},
		"one bad":   {func() { f.Header.Copies = 1 }, "one of the two copies"},
		"bad":       {func() { f.Header = Header{State: HeaderDamaged, Reason: "x"} }, "damaged"},
	} {
		before := f.Observation
		test.change()
		got, err := f.manager().Check(subject)
		if err != nil || !strings.Contains(got, test.says) || (got == "") != (test.says == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		f.Observation = before
	}
}

func TestRecover(t *testing.T) {
	f := newFake()
	f.Mapping = open(0)
	m := f.manager()
	if err := m.Recover(t.Context()); err != nil || !f.Mapping.Live {
		t.Errorf("an open volume: %v", err)
	}
	f.Mapping.Suspended, f.Mapping.Table.KeyGone = true, true
	if err := m.Recover(t.Context()); err != nil || !f.Mapping.Suspended {
		t.Errorf("an admin's luksSuspend: %v", err)
	}
	f.Mapping.Table.KeyGone = false
	if err := m.Recover(t.Context()); err != nil || f.Mapping.Suspended {
		t.Errorf("a suspended mapping: %v", err)
	}
	f.Mapping.Live = false
	if err := m.Recover(t.Context()); err != nil || f.Mapping.Exists {
		t.Errorf("a mapping without a table: %v", err)
	}
	if _, _, is, err := m.Mapping(subject.Handle); is || err != nil {
		t.Errorf("%t, %v", is, err)
	}
}

func TestSuspend(t *testing.T) {
	f := newFake()
	m := f.manager()
	if resume, err := m.Suspend(subject.Handle); err != nil || resume() != nil {
		t.Errorf("a closed volume: %v", err)
	}
	f.expect(t, "")
	f.Mapping = open(0)
	resume, err := m.Suspend(subject.Handle)
	if err != nil || !f.Mapping.Suspended {
		t.Fatal(err)
	}
	if err := resume(); err != nil || f.Mapping.Suspended {
		t.Errorf("%v", err)
	}
	f.killAt = 1
	if _, err := m.Suspend(subject.Handle); lvm.KindOf(err) != lvm.KindInternal {
		t.Errorf("%v", err)
	}
	f.expect(t, "suspend true, suspend false, suspend true")
}

// TestSuspendNoticesAResume: if another program resumes a mapping before its time, Suspend's resume says so, and a snapshot does not
// count. cryptsetup resize does that: it observes the mapping, and its last step resumes it.
func TestSuspendNoticesAResume(t *testing.T) {
	for name, test := range map[string]struct {
		before, during func(m *Mapping)
		busy           bool
		after          bool // suspended in the end
	}{
		"resumed by cryptsetup resize":                       {func(*Mapping) {}, func(m *Mapping) { m.Suspended = false }, true, false},
		"closed":                                             {func(*Mapping) {}, func(m *Mapping) { *m = Mapping{} }, true, false},
		"suspended by an admin":                              {func(m *Mapping) { m.Suspended = true }, func(*Mapping) {}, false, true},
		"suspended and resumed by an admin":                  {func(m *Mapping) { m.Suspended = true }, func(m *Mapping) { m.Suspended = false }, true, false},
		"suspended once, and not resumed by another program": {func(*Mapping) {}, func(*Mapping) {}, false, false},
	} {
		f := newFake()
		m := f.manager()
		f.Mapping = open(0)
		test.before(&f.Mapping)
		resume, err := m.Suspend(subject.Handle)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		test.during(&f.Mapping)
		err = resume()
		if test.busy != (lvm.KindOf(err) == lvm.KindBusy) || !test.busy && err != nil || f.Mapping.Suspended != test.after {
			t.Errorf("%s: suspended %t, %v", name, f.Mapping.Suspended, err)
		}
	}
}

// several is a node with several mappings.
type several struct {
	*fake
	mu      sync.Mutex
	all     map[string]*Mapping
	failing map[string]bool          // neither a removal nor a resume succeeds
	hung    map[string]chan struct{} // a resume ends when this is closed
	removed []string                 // attempts
}

func newSeveral(all map[string]*Mapping) *several {
	return &several{fake: newFake(), all: all, failing: map[string]bool{}, hung: map[string]chan struct{}{}}
}

func (s *several) manager() *Manager {
	m := New(nil)
	m.machine = s
	return m
}

func (s *several) mappings() ([]string, error) { return slices.Sorted(maps.Keys(s.all)), nil }

func (s *several) mapping(name string) (Mapping, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.all[name], nil
}

func (s *several) removeMapping(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, name)
	if s.failing[name] {
		return lvm.Errorf(lvm.KindInUse, "the encrypted mapping %s is open", name)
	}
	*s.all[name] = Mapping{}
	return nil
}

func (s *several) suspend(name string, stop bool) error {
	if answers := s.hung[name]; answers != nil {
		<-answers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing[name] {
		return errors.New("no memory")
	}
	s.all[name].Suspended = stop
	return nil
}

func (s *several) expectSuspended(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var suspended []string
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if s.all[name].Suspended {
			suspended = append(suspended, name)
		}
	}
	if !slices.Equal(suspended, want) {
		t.Errorf("suspended: %q, want %q", suspended, want)
	}
}

// TestRecoverContinuesAfterAFailure: a mapping that cannot be recovered keeps no other one suspended, and Resume retries.
func TestRecoverContinuesAfterAFailure(t *testing.T) {
	stopped := func() *Mapping { return &Mapping{Exists: true, Live: true, Suspended: true} }
	s := newSeveral(map[string]*Mapping{"a, no table": {Exists: true}, "b": stopped(), "c": stopped()})
	m := s.manager()
	s.failing["a, no table"], s.failing["b"] = true, true
	if err := m.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "mapping b") || strings.Contains(err.Error(), "mapping a") {
		t.Errorf("%v", err)
	}
	s.expectSuspended(t, "b")
	s.failing["b"] = false
	if err := m.Resume(t.Context()); err != nil {
		t.Error(err)
	}
	s.expectSuspended(t)
	if len(s.removed) != 1 { // a cryptsetup of this driver may be about to load the table
		t.Errorf("removed: %q", s.removed)
	}
}

// TestHungResumeDelaysNoOther: to thaw a file system can block while its disk does not answer.
func TestHungResumeDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := func() *Mapping { return &Mapping{Exists: true, Live: true, Suspended: true} }
		s := newSeveral(map[string]*Mapping{"a": stopped(), "b": stopped()})
		s.hung["a"] = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.manager().Recover(ctx) }()
		synctest.Wait()
		s.expectSuspended(t, "a")
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		close(s.hung["a"])
		synctest.Wait()
		s.expectSuspended(t)
	})
}

// TestResumeSparesSnapshots: Resume does not change a mapping that this driver has suspended for a snapshot.
func TestResumeSparesSnapshots(t *testing.T) {
	f := newFake()
	m := f.manager()
	f.Mapping = open(0)
	end, err := m.Suspend(subject.Handle)
	must(t, err)
	if err := m.Resume(t.Context()); err != nil || !f.Mapping.Suspended {
		t.Errorf("in the snapshot: suspended %t, %v", f.Mapping.Suspended, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	f.Mapping.Suspended = true // by a driver that was killed
	if err := m.Resume(t.Context()); err != nil || f.Mapping.Suspended {
		t.Errorf("after it: suspended %t, %v", f.Mapping.Suspended, err)
	}
}

// TestPassphraseDerivationsAreSerialized: a command with a passphrase waits for its turn until its context ends.
func TestPassphraseDerivationsAreSerialized(t *testing.T) {
	f := newFake()
	m := f.manager()
	m.costly <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Stage(ctx, f.request(map[string]string{"passphrase": "12345678"})); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("%v", err)
	}
	if _, err := m.Stage(ctx, f.request(oneKey)); err != nil {
		t.Errorf("a random key needs no turn: %v", err)
	}
}

// hungDisk is a node on which cryptsetup for one volume does not end until the volume's disk answers.
type hungDisk struct {
	*fake
	device  string
	answers chan struct{}
}

func (h hungDisk) cryptsetup(_ context.Context, _ *os.File, args []string, _ ...*Key) error {
	if slices.Contains(args, h.device) {
		<-h.answers
	}
	return nil
}

// TestHungCommandGivesUpItsTurn: volumes with a passphrase on other disks can be opened although one disk does not answer, and the
// turn is released only once when that disk answers again.
func TestHungCommandGivesUpItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(nil)
		disk := hungDisk{newFake(), "/dev/hung", make(chan struct{})}
		m.machine = disk
		keys, err := ParseSecret(map[string]string{"passphrase": "12345678"})
		must(t, err)
		open := func(device string) error {
			s := stage{Manager: m, Request: Request{Volume: NewVolume(device, "uuid", device), Keys: keys}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*maxTurn)
			defer cancel()
			return s.run(ctx, Header{}, openArgs(s.Volume, false, false), keys.Current)
		}
		ended := make(chan error, 1)
		go func() { ended <- open("/dev/hung") }()
		synctest.Wait()
		if err := open("/dev/other"); err != nil {
			t.Errorf("%v", err)
		}
		close(disk.answers)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := open("/dev/other"); err != nil || len(m.costly) != 0 {
			t.Errorf("%v, %d turns are taken", err, len(m.costly))
		}
	})
}

var must = check.Must
