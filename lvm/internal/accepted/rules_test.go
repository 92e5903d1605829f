package accepted

import (
	"strings"
	"testing"
)

const pv = "PVAAAA-0000-0000-0000-0000-0000-000001"

// TestDecide: each rule, and what beats it.
func TestDecide(t *testing.T) {
	ours, theirs := Identity{WWID: "naa.1"}, Identity{WWID: "naa.2"}
	record := []Entry{{PV: pv, Device: "/dev/sda", Identity: ours}}
	awaited := []Entry{{Device: "/dev/sda", Identity: ours}}
	host := []HostEntry{{"sys_wwid", "naa.1", strings.ReplaceAll(pv, "-", ""), ""}}
	ebs := []string{"ebs.csi.aws.com"}
	for name, c := range map[string]struct {
		candidate Candidate
		around    Surroundings
		want      Reason
		refusal   string
	}{
		"the first use":                          {Candidate{PV: pv, Identity: ours}, Surroundings{First: true, Others: ebs}, FirstUse, ""},
		"the first use, a volume of a pod":       {Candidate{PV: pv, Identity: ours, Held: "it is a pod's"}, Surroundings{First: true}, "", "it is a pod's"},
		"not known whether it is one of a pod":   {Candidate{PV: pv, Identity: ours, Listed: true, Unknown: "unknown"}, Surroundings{Host: host}, "", "unknown"},
		"the first use, remote":                  {Candidate{PV: pv, Identity: ours, Remote: true}, Surroundings{First: true, Others: ebs}, FirstUse, ""},
		"unreadable at the first use":            {Candidate{PV: pv, Identity: ours}, Surroundings{Others: ebs, Records: awaited}, FirstUse, ""},
		"not the disk that was unreadable":       {Candidate{PV: pv, Identity: theirs}, Surroundings{Others: ebs, Records: awaited}, "", "another storage driver on this node (ebs.csi.aws.com)"},
		"of the host's devices file":             {Candidate{PV: pv, Identity: ours}, Surroundings{Others: ebs, Host: host}, HostFile, ""},
		"of that file, on another device":        {Candidate{PV: pv, Identity: theirs}, Surroundings{Others: ebs, Host: host}, "", "another storage driver"},
		"of that file, a volume of a pod":        {Candidate{PV: pv, Identity: ours, Held: "held"}, Surroundings{Others: ebs, Host: host}, "", "held"},
		"no other driver":                        {Candidate{PV: pv, Identity: ours}, Surroundings{}, NoOtherDriver, ""},
		"no other driver, a volume of a pod":     {Candidate{PV: pv, Identity: ours, Held: "held"}, Surroundings{}, "", "held"},
		"no other driver, remote":                {Candidate{PV: pv, Identity: ours, Remote: true}, Surroundings{}, "", "storage network"},
		"no other driver, a copy":                {Candidate{PV: pv, Identity: theirs}, Surroundings{Records: record}, NoOtherDriver, ""},
		"listed by its group":                    {Candidate{PV: pv, Identity: ours, Listed: true}, Surroundings{Others: ebs}, Listed, ""},
		"listed, recorded on another device":     {Candidate{PV: pv, Identity: theirs, Listed: true}, Surroundings{Others: ebs, Records: record}, "", "on another device, last /dev/sda (WWID naa.1)"},
		"listed, a volume of a pod":              {Candidate{PV: pv, Identity: ours, Listed: true, Held: "held"}, Surroundings{Others: ebs}, "", "held"},
		"of another driver, perhaps":             {Candidate{PV: pv, Identity: ours}, Surroundings{Others: []string{"a", "b", "c", "d"}}, "", "(a, b, c and 1 more)"},
		"recorded elsewhere, by the command now": {Candidate{PV: pv, Identity: theirs}, Surroundings{Others: ebs, Records: with(record, Entry{PV: pv, Identity: theirs})}, "", "another device"},
	} {
		v := Decide(c.candidate, c.around)
		if v.Reason != c.want || (v.Refusal == "") != (c.want != "") || !strings.Contains(v.Refusal, c.refusal) || v.Expected != (c.candidate.Held != "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestSame: hardware is recognized by what it reports; a place counts only without that.
func TestSame(t *testing.T) {
	for name, c := range map[string]struct {
		a, b Identity
		same bool
	}{
		"one WWID":                                {Identity{WWID: "naa.1", Place: "x"}, Identity{WWID: "naa.1", Place: "y"}, true},
		"another WWID":                            {Identity{WWID: "naa.1", Place: "x"}, Identity{WWID: "naa.2", Place: "x"}, false},
		"a WWID in another form, one serial":      {Identity{WWID: "eui.1", Serial: "S"}, Identity{WWID: "uuid.1", Serial: "S"}, true},
		"another WWID, one serial, another place": {Identity{WWID: "eui.1", Serial: "S", Place: "x"}, Identity{WWID: "eui.2", Serial: "S", Place: "y"}, false},
		"one serial":                              {Identity{Serial: "S"}, Identity{Serial: "S"}, true},
		"another serial in one place":             {Identity{Serial: "S", Place: "x"}, Identity{Serial: "T", Place: "x"}, false},
		"one place":                               {Identity{Place: "x"}, Identity{Place: "x"}, true},
		"another place":                           {Identity{Place: "x"}, Identity{Place: "y"}, false},
		"one place, one with a WWID":              {Identity{Place: "x"}, Identity{WWID: "naa.1", Place: "x"}, false},
		"one place, one with a serial":            {Identity{Serial: "S", Place: "x"}, Identity{Place: "x"}, false},
		"another partition":                       {Identity{WWID: "naa.1", Partition: 1}, Identity{WWID: "naa.1", Partition: 2}, false},
		"a partition and its disk":                {Identity{WWID: "naa.1", Partition: 1}, Identity{WWID: "naa.1"}, false},
		"nothing known":                           {Identity{}, Identity{}, false},
	} {
		if c.a.Same(c.b) != c.same || c.b.Same(c.a) != c.same {
			t.Errorf("%s: %v", name, !c.same)
		}
	}
}

// TestHostEntries: of the host's devices file counts what identifies the hardware, with the PV.
func TestHostEntries(t *testing.T) {
	const id = "PVAAAA00000000000000000000000001"
	entries := parseHostFile("# comment\nVERSION=1.1.2\nIDTYPE=sys_wwid IDNAME=t10.ATA_____DISK_9 DEVNAME=/dev/sda2 PVID=" + id + " PART=2\n" +
		"IDTYPE=devname IDNAME=/dev/vdb DEVNAME=/dev/vdb PVID=" + id + "\nIDTYPE=sys_serial IDNAME=S1 DEVNAME=/dev/sdc PVID=.\nIDTYPE=loop_file IDNAME=/x PVID=" + id + "\nnonsense\n")
	if len(entries) != 3 {
		t.Fatalf("%+v", entries)
	}
	for name, c := range map[string]struct {
		entry int
		id    Identity
		want  bool
	}{
		"by WWID":                       {0, Identity{WWID: "t10.ATA DISK 9", Partition: 2}, true},
		"another disk":                  {0, Identity{WWID: "t10.ATA DISK 8", Partition: 2}, false},
		"the whole disk":                {0, Identity{WWID: "t10.ATA DISK 9"}, false},
		"by name, nothing better":       {1, Identity{Place: "pci0"}, true},
		"by name, which is not enough":  {1, Identity{WWID: "naa.1"}, false},
		"of a kind that is not checked": {2, Identity{Place: "loop /x"}, false},
	} {
		if entries[c.entry].names(pv, c.id) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
	if entries[0].names("PVBBBB-0000-0000-0000-0000-0000-000001", Identity{WWID: "t10.ATA DISK 9", Partition: 2}) {
		t.Error("of another PV")
	}
}
