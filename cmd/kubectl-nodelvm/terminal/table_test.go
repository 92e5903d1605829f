package terminal

import (
	"bytes"
	"testing"
)

func TestColourAndWidth(t *testing.T) {
	tab := &Table{Header: []string{"A", "STATUS"}}
	tab.Add(Cell{Text: "pvc-0123456789-0123456789"}, Cell{Text: "ok", Tone: Good})
	tab.Add(Cell{Text: "x"}, Cell{Text: "suspended", Tone: Bad})
	var out bytes.Buffer
	if err := tab.Write(&out, 20, true); err != nil {
		t.Fatal(err)
	}
	want := "A          STATUS\npvc-…6789  " + string(Good) + "ok" + ToneEnd + "\nx          " + string(Bad) + "suspended" + ToneEnd + "\n"
	if out.String() != want {
		t.Errorf("got\n%q, want\n%q", out.String(), want)
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
