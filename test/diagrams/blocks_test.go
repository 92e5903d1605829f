package diagrams

import (
	"slices"
	"testing"
)

func TestBlocks(t *testing.T) {
	page := "text\n```mermaid\nflowchart LR\n  a --> b\n```\n```yaml\na: b\n```\n```mermaid\nsequenceDiagram\n```\n"
	if got, want := Blocks([]byte(page)), []string{"flowchart LR\n  a --> b\n", "sequenceDiagram\n"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParse(t *testing.T) {
	document := []byte(`<body><pre id="results">[{"Error":"a &lt; b","Width":0,"Texts":0}]</pre></body>`)
	got, err := parse(document, 1)
	if err != nil || len(got) != 1 || got[0].Error != "a < b" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := parse(document, 2); err == nil {
		t.Error("a result is missing, and no error says so")
	}
	if _, err := parse([]byte("<body></body>"), 1); err == nil {
		t.Error("a page without results gives no error")
	}
}
