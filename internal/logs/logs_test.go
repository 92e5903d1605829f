package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestLoggerKeepsItsLevel(t *testing.T) {
	for level, want := range map[string][]string{
		"debug": {"d", "i", "w", "e"},
		"info":  {"i", "w", "e"},
		"warn":  {"w", "e"},
		"error": {"e"},
	} {
		var out bytes.Buffer
		log, err := New(&out, level, "json")
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e", "error", errors.New("boom"))
		var got []string
		for line := range strings.Lines(out.String()) {
			var entry struct{ Msg, Level, Time string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" {
				t.Fatalf("not a log entry: %s (%v)", line, err)
			}
			got = append(got, entry.Msg)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("at level %s: %q, want %q", level, got, want)
		}
	}
}

func TestKlogIsRouted(t *testing.T) {
	var out bytes.Buffer
	if _, err := New(&out, "info", "console"); err != nil {
		t.Fatal(err)
	}
	klog.InfoS("from a library", "disk", "sda")
	klog.V(4).InfoS("too much")
	if got := out.String(); !strings.Contains(got, "from a library") || !strings.Contains(got, "sda") || strings.Contains(got, "too much") {
		t.Errorf("klog wrote %q", got)
	}
}

func TestLoggerRefuses(t *testing.T) {
	for _, flags := range [][2]string{{"verbose", "json"}, {"fatal", "json"}, {"info", "xml"}, {"", ""}} {
		if _, err := New(&bytes.Buffer{}, flags[0], flags[1]); err == nil {
			t.Errorf("level %q and format %q were accepted", flags[0], flags[1])
		}
	}
}
