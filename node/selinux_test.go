package node

import "testing"

func TestDroppedContext(t *testing.T) {
	const label = `context="system_u:object_r:container_file_t:s0:c1,c2"`
	for _, c := range []struct {
		why     string
		options []string
		super   string
		want    string
	}{
		{"a node without SELinux", []string{label}, "rw", ""},
		{"no label requested", []string{"noatime"}, "rw,seclabel", ""},
		{"the kernel has the label", []string{"noatime", label}, "rw," + label, ""},
		{"mount(8) dropped it", []string{"noatime," + label}, "rw,seclabel", label},
		{"the kernel has another label", []string{"rootcontext=a:b:c", "context=a:b:c"}, "rw,seclabel,rootcontext=a:b:c", "context=a:b:c"},
		{"not the whole name", []string{"context=a:b:c"}, "rw,seclabel,fscontext=a:b:c", "context=a:b:c"},
	} {
		if got := droppedContext(c.options, c.super); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
}
