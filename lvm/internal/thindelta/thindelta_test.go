package thindelta

import (
	"fmt"
	"strings"
	"testing"
)

const head = `<superblock uuid="" time="1" transaction="2" data_block_size="128" nr_data_blocks="400">` + "\n  <diff left=\"1\" right=\"2\">\n"

const foot = "  </diff>\n</superblock>\n"

func TestParse(t *testing.T) {
	var got []string
	body := `<same begin="0" length="8"/><different begin="8" length="1"/><left_only begin="9" length="2"/>
	<right_only begin="11" length="3"/><same begin="14" length="1"/>`
	chunk, err := Parse(strings.NewReader(head+body+foot), func(from, length int64) { got = append(got, fmt.Sprintf("%d+%d", from, length)) })
	if want := "8+1 9+2 11+3"; err != nil || chunk != 64*1024 || strings.Join(got, " ") != want {
		t.Errorf("%s, %v, %v; want %s", chunk, got, err, want)
	}
}

// TestParseRefuses: what is cut, or not understood, is no answer.
func TestParseRefuses(t *testing.T) {
	for what, text := range map[string]string{
		"nothing":           "",
		"no comparison":     `<superblock data_block_size="128"></superblock>`,
		"cut":               head + `<same begin="0" length="8"/>`,
		"cut in an element": head + `<different begin="0" len`,
		"no chunk":          `<superblock uuid=""><diff left="1" right="2"></diff></superblock>`,
		"a negative chunk":  `<superblock data_block_size="-128"><diff></diff></superblock>`,
		"a huge chunk":      `<superblock data_block_size="123456789012"><diff></diff></superblock>`,
		"no length":         head + `<different begin="0"/>` + foot,
		"a negative begin":  head + `<different begin="-1" length="1"/>` + foot,
		"an empty range":    head + `<different begin="1" length="0"/>` + foot,
		"a huge range":      head + `<different begin="1" length="99999999999999999999"/>` + foot,
		"an unknown change": head + `<moved begin="1" length="1"/>` + foot,
	} {
		if chunk, err := Parse(strings.NewReader(text), func(int64, int64) {}); err == nil {
			t.Errorf("%s: accepted, with chunks of %s", what, chunk)
		}
	}
}

// TestNoMetadata: without thin_delta, or without a pool, the error names the program.
func TestNoMetadata(t *testing.T) {
	_, err := Command{}.Compare(t.Context(), "/dev/null", 1, 2, func(int64, int64) {})
	if err == nil || !strings.Contains(err.Error(), "thin_delta") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(head + `<different begin="8" length="1"/>` + foot)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = Parse(strings.NewReader(text), func(from, length int64) {
			if from < 0 || length <= 0 || from >= 1<<47 || length >= 1<<47 {
				t.Fatalf("%d+%d", from, length)
			}
		})
	})
}
