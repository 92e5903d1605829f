package terminal

import (
	"bytes"
	"testing"
)

func TestColourAndWidth(t *testing.T) {
	tab := &Table{Header: []string{"A", "STATUS", "DETAILS"}, Sentences: []string{"DETAILS"}}
	fill := 0.5
	tab.Add(Cell{Text: "pvc-0123456789-0123456789"}, Cell{Text: "ok", Tone: Good}, Cell{Text: "the disk does not answer: see dmesg on the node"})
	tab.Add(Cell{Text: "x"}, Cell{Text: "50%", Tone: Bad, Fill: &fill}, Cell{Text: "-"})
	name := "pvc-0123456789-0123456789  "
	for _, test := range []struct {
		width        int
		header, x, y string
	}{
		{0, "A                          STATUS         DETAILS", name + string(Good) + "ok" + ToneEnd + "             the disk does not answer: see dmesg on the node",
			"x                          " + string(Bad) + "████░░░░  50%" + ToneEnd + "  -"},
		{66, "A                          STATUS         DETAILS", name + string(Good) + "ok" + ToneEnd + "             the disk doe…on the node", "x                          " + string(Bad) + "████░░░░  50%" + ToneEnd + "  -"},
		{60, "A                          STATUS  DETAILS", name + string(Good) + "ok" + ToneEnd + "      the disk doe… on the node", "x                          " + string(Bad) + "50%" + ToneEnd + "     -"},
		{20, "A                          STATUS  DETAILS", name + string(Good) + "ok" + ToneEnd + "      the disk doe…on the node", "x                          " + string(Bad) + "50%" + ToneEnd + "     -"},
	} {
		tab.Bars = true
		var out bytes.Buffer
		if err := tab.Write(&out, test.width, true); err != nil {
			t.Fatal(err)
		}
		if want := test.header + "\n" + test.x + "\n" + test.y + "\n"; out.String() != want {
			t.Errorf("in %d columns\n%s, want\n%s", test.width, out.String(), want)
		}
	}
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{{"abc", 3, "abc"}, {"abcdef", 5, "ab…ef"}, {"abcdef", 4, "ab…f"}, {"äöüßäöü", 5, "äö…öü"}, {"abc", 2, "ab"}} {
		if got := shorten(test.text, test.width); got != test.want {
			t.Errorf("%q in %d: %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func TestBars(t *testing.T) {
	for fill, want := range map[float64]string{0: "░░░░░░░░", 0.001: "█░░░░░░░", 0.5: "████░░░░", 0.999: "███████░", 1: "████████", 1.2: "████████"} {
		if got := bar(fill); got != want {
			t.Errorf("%g: %s, want %s", fill, got, want)
		}
	}
	for part, want := range map[float64]Cell{84: {Text: "84%"}, 85: {Text: "85%", Tone: Late}, 95: {Text: "95%", Tone: Bad}} {
		if got := LevelCell(part, 100); got.Text != want.Text || got.Tone != want.Tone || *got.Fill != part/100 {
			t.Errorf("%g of 100: %+v, want %+v", part, got, want)
		}
	}
	if got := LevelCell(1, 0); got.Text != "-" || got.Fill != nil {
		t.Errorf("of nothing: %+v", got)
	}
}
