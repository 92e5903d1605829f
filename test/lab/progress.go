package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	barWidth  = 20
	tailLines = 30
)

// progress prints the steps for a person: on a terminal a live line for the running step, elsewhere a line at its end, and one
// earlier if it takes long.
type progress struct {
	w    io.Writer
	live bool
}

// newProgress returns a progress that prints to w; nil discards the output.
func newProgress(w io.Writer) *progress {
	if w == nil {
		w = io.Discard
	}
	f, ok := w.(*os.File)
	return &progress{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

// printf prints to w. It ignores errors, so that the work continues if the reader is gone.
func (p *progress) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format, args...)
}

// teller receives the number of completed parts of a step, their total, and the current part.
type teller func(done, total int, what string)

// step runs f as the step called name. If f fails and its error names a log, step prints the end of the log.
func (p *progress) step(name string, f func(tell teller) error) error {
	var mu sync.Mutex
	begin, status := time.Now(), ""
	show := func(force bool) {
		mu.Lock()
		defer mu.Unlock()
		elapsed := time.Since(begin).Round(time.Second)
		switch {
		case p.live:
			p.printf("\r\033[K  .. %-40s %5s  %s", name, elapsed, status)
		case force:
			p.printf("  .. %-40s %5s  %s\n", name, elapsed, status)
		}
	}
	stop := tick(show, p.live)
	err := f(func(done, total int, what string) {
		mu.Lock()
		status = bar(done, total) + " " + what
		mu.Unlock()
		show(false)
	})
	stop()
	if p.live {
		p.printf("\r\033[K")
	}
	mark := "ok"
	if err != nil {
		mark = "!!"
	}
	p.printf("  %s %-40s %6.1fs\n", mark, name, time.Since(begin).Seconds())
	p.showLog(err)
	return err
}

// tick calls show every second on a terminal, elsewhere after 2 s and then every 30 s, until stop is called.
func tick(show func(force bool), live bool) (stop func()) {
	first, every := 2*time.Second, 30*time.Second
	if live {
		first, every = 0, time.Second
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for wait := first; ; wait = every {
			select {
			case <-quit:
				return
			case <-time.After(wait):
				show(true)
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// bar draws the completed part of a total; "" if the total is unknown.
func bar(done, total int) string {
	if total <= 0 {
		return ""
	}
	full := min(max(done, 0)*barWidth/total, barWidth)
	return fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), done, total)
}

// logError is an error with details in a log.
type logError struct {
	err  error
	file string
}

func (e *logError) Error() string { return fmt.Sprintf("%v (log: %s)", e.err, e.file) }
func (e *logError) Unwrap() error { return e.err }

// logged adds the log called name to err.
func (l *Lab) logged(name string, err error) error {
	return &logError{err: err, file: l.logFile(name)}
}

// showLog prints the end of the log that err names, if any.
func (p *progress) showLog(err error) {
	var le *logError
	if !errors.As(err, &le) {
		return
	}
	b, readErr := os.ReadFile(le.file)
	if readErr != nil {
		p.printf("     the log %s cannot be read: %v\n", le.file, readErr)
		return
	}
	p.printf("     the end of %s:\n", le.file)
	for _, line := range lastLines(b, tailLines) {
		p.printf("     | %s\n", line)
	}
}

// lastLines returns the last n lines of text.
func lastLines(text []byte, n int) []string {
	lines := strings.Split(string(bytes.TrimRight(text, "\n")), "\n")
	return lines[max(0, len(lines)-n):]
}
