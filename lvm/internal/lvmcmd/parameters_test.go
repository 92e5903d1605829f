package lvmcmd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// two are two values of a parameter in a layout, as a StorageClass has them; ok is false if the layout allows only one.
func two(p lvm.Parameter, r lvm.Range) (values [2]string, ok bool) {
	switch p.Form {
	case lvm.FormCount:
		return [2]string{fmt.Sprint(r.Least), fmt.Sprint(r.Least + 1)}, r.Most > r.Least
	case lvm.FormSize:
		return [2]string{fmt.Sprintf("%dKi", r.Least), fmt.Sprintf("%dKi", 2*r.Least)}, true
	case lvm.FormRatio:
		return [2]string{"1.5", "2"}, true
	case lvm.FormChoice:
		return [2]string{p.Choices[0], p.Choices[len(p.Choices)-1]}, true
	case lvm.FormText:
	}
	return [2]string{"vg", "vg2"}, true
}

// linesOf are the commands that create a volume of the class, with and without its tags.
func linesOf(t *testing.T, class lvm.Class) (lines, untagged string) {
	t.Helper()
	disk := []lvm.Run{{Start: 0, Count: 100}}
	s := lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg", disk, disk, disk, disk, disk, disk), fixture.TestGroup("vg2", disk, disk, disk, disk, disk, disk)}}
	ps, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: class, Required: 48 * lvm.MiB}})
	fixture.Must(t, err)
	steps, err := CreateSteps(ps[0].Create)
	fixture.Must(t, err)
	for _, step := range steps {
		lines += strings.Join(step.Argv, " ") + "\n"
		for i, word := range step.Argv {
			if word != "--addtag" && (i == 0 || step.Argv[i-1] != "--addtag") {
				untagged += word + " "
			}
		}
	}
	return lines, untagged
}

// TestParameterChangesCommand: each parameter changes the command line of each layout that has it, by its option, or else by the tag that
// its reader finds. Every other layout refuses it.
func TestParameterChangesCommand(t *testing.T) {
	for _, p := range lvm.Parameters {
		if p.Option == "" && p.Effect == "" {
			t.Errorf("%s: its row has neither an option of lvcreate nor says what reads its value", p.Name)
		}
		if !p.InClass() || p.Name == "layout" {
			continue
		}
		for _, layout := range lvm.Layouts {
			r, has := p.In(layout)
			if !has {
				for _, r = range p.Layouts { // a value of another layout
					break
				}
			}
			values, differ := two(p, r)
			var lines, untagged [2]string
			for i, value := range values {
				class := lvm.Class{Group: "vg", Layout: layout}
				if p.Default == "" && p.Form == lvm.FormChoice && i == 0 {
					lines[i], untagged[i] = linesOf(t, class) // without it
					continue
				}
				fixture.Must(t, p.Parse(&class, value))
				checked, err := lvm.CheckClass(class)
				if (err == nil) != has && (differ || i == 0) {
					t.Errorf("%s %s of the layout %s: %v", p.Name, value, layout, err)
				}
				if err == nil {
					lines[i], untagged[i] = linesOf(t, checked)
				}
			}
			if has && differ && lines[0] == lines[1] {
				t.Errorf("%s: %s and %s give the layout %s one command line: give its row a tag, or an option", p.Name, values[0], values[1], layout)
			}
			if has && differ && p.Option != "" && (untagged[0] == untagged[1] || !slices.Contains(strings.Fields(untagged[1]), p.Option)) {
				t.Errorf("%s: the option %s does not reach lvcreate for the layout %s: %s", p.Name, p.Option, layout, untagged[1])
			}
		}
	}
}

// TestParametersAreFields: each field of a class is a parameter, and each parameter has another field and another tag.
func TestParametersAreFields(t *testing.T) {
	var tags []string
	for _, p := range lvm.Parameters {
		var class lvm.Class
		value := map[lvm.Form]string{lvm.FormCount: "7", lvm.FormSize: "8", lvm.FormRatio: "150"}[p.Form]
		if p.Form == lvm.FormChoice || p.Form == lvm.FormText {
			value = "x"
		}
		if fixture.Must(t, p.Set(&class, value)); p.InClass() != (class != lvm.Class{}) || p.InClass() && p.Value(class) != value {
			t.Errorf("%s: %q makes %+v", p.Name, value, class)
		}
		for _, other := range lvm.Parameters {
			if other.Name != p.Name && other.Value(class) != "" {
				t.Errorf("%s sets %s", p.Name, other.Name)
			}
		}
		if p.Tag != "" && slices.Contains(tags, p.Tag) {
			t.Errorf("two parameters have the tag %s", p.Tag)
		}
		tags = append(tags, p.Tag)
	}
}
