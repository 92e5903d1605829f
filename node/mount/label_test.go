package mount

import (
	"strings"
	"testing"
)

func TestMissingLabel(t *testing.T) {
	const label = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	long := `context="a:b:c:s0:` + strings.Repeat("c0.c65535,", 1000) + `c0"`
	for _, c := range []struct {
		why     string
		options []string
		super   string
		want    string
	}{
		{"a node without SELinux", []string{label}, "rw", ""},
		{"no label requested", []string{"noatime"}, "rw,seclabel", ""},
		{"no label requested, but mounted with one", []string{"noatime"}, "rw," + label, ""},
		{"the kernel has the label", []string{"noatime", label}, "rw," + label, ""},
		{"mounted without the label", []string{"noatime," + label}, "rw,seclabel", label},
		{"another label", []string{label}, `rw,context="system_u:object_r:container_file_t:s0:c1,c3"`, label},
		{"a type that may be an alias", []string{"context=a:b:c:s0"}, "rw,context=a:b:d:s0", ""},
		{"another role", []string{"context=a:b:c:s0"}, "rw,context=a:c:c:s0", "context=a:b:c:s0"},
		{"another user", []string{"context=a:b:c:s0"}, "rw,context=b:b:c:s0", "context=a:b:c:s0"},
		{"another option", []string{"rootcontext=a:b:c", "context=a:b:c"}, "rw,seclabel,rootcontext=a:b:c", "context=a:b:c"},
		{"not the whole name", []string{"context=a:b:c"}, "rw,seclabel,fscontext=a:b:c", "context=a:b:c"},
		{"no comma", []string{`context="a:b:c:s0:c7"`}, "rw,context=a:b:c:s0:c7", ""},
		{"sorted", []string{`context="a:b:c:s0:c27,c4"`}, `rw,context="a:b:c:s0:c4,c27"`, ""},
		{"joined", []string{`context="a:b:c:s0:c2,c0,c1"`}, "rw,context=a:b:c:s0:c0.c2", ""},
		{"a longer range", []string{`context="a:b:c:s0:c0.c2"`}, "rw,context=a:b:c:s0:c0.c3", `context="a:b:c:s0:c0.c2"`},
		{"a range of levels", []string{"context=a:b:c:s0-s0:c0.c1023"}, "rw,context=a:b:c:s0-s0:c0.c1023", ""},
		{"a range of one level", []string{"context=a:b:c:s0-s0"}, "rw,context=a:b:c:s0", ""},
		{"other levels", []string{"context=a:b:c:s0:c1-s1:c1"}, "rw,context=a:b:c:s0:c1-s2:c1", "context=a:b:c:s0:c1-s1:c1"},
		{"no categories", []string{"context=a:b:c:s0"}, "rw,context=a:b:c:s0:c0", "context=a:b:c:s0"},
		{"longer than the kernel takes", []string{long}, "rw,context=a:b:c:s0:c0.c65535", long},
		{"no levels", []string{"context=a:b:c"}, "rw,context=a:b:c", ""},
		{"no label", []string{"context=a"}, "rw,context=a:b:c:s0", "context=a"},
		{"another sensitivity", []string{"context=a:b:c:s0:c1"}, "rw,context=a:b:c:s1:c1", "context=a:b:c:s0:c1"},
		{"a category that may be an alias", []string{"context=a:b:c:s0:secret"}, "rw,context=a:b:c:s0:c5", ""},
		{"a sensitivity that may be an alias", []string{"context=a:b:c:low"}, "rw,context=a:b:c:s0", ""},
		{"a number that no policy has", []string{"context=a:b:c:s0:c0.c99999999999999999999"}, "rw,context=a:b:c:s0:c0", ""},
	} {
		if got := MissingLabel(c.options, c.super); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
