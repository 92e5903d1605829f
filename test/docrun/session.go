package docrun

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/test/lab"
)

// blockLimit is how long the commands of one block may take.
const blockLimit = 10 * time.Minute

// session is a reader at a shell: `lab shell` in a folder with links to the files of the checkout.
type session struct {
	lab    *lab.Lab
	report func(format string, args ...any) // gets a line for each block
	names  *strings.Replacer                // the names of the page's nodes and disks -> those of the lab
	with   string                           // the value of the chart whose blocks run

	dir    string   // the working directory
	stdin  *os.File // a pipe: exec waits for the end of any other reader
	output *watched
	ended  chan struct{}
	count  int
}

// start starts the shell in dir. The caller calls close.
func (s *session) start(ctx context.Context, checkout, dir string) error {
	entries, err := os.ReadDir(checkout)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if err := os.Symlink(filepath.Join(checkout, entry.Name()), filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	stdin, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	s.dir, s.stdin, s.output, s.ended = dir, writer, newWatched(), make(chan struct{})
	go func() {
		defer close(s.ended)
		err := s.lab.Shell(ctx, dir, stdin, s.output, s.output, "--noprofile", "--norc", "-eo", "pipefail")
		s.output.close(err)
		_ = stdin.Close() // it was only read
	}()
	return nil
}

// close ends the shell.
func (s *session) close() {
	_ = s.stdin.Close() // bash reads the end of its input
	<-s.ended
}

// run runs a block, and fails with what its command printed if that is not what the page says.
func (s *session) run(ctx context.Context, b Block) error {
	if b.NotRun != "" {
		s.report("line %d: not run: %s", b.Line, b.NotRun)
		return nil
	}
	if b.With != s.with {
		if b.With != "" {
			s.report("line %d: not run here: it needs %s", b.Line, b.With)
		}
		return nil
	}
	if b.Setup != "" {
		if out, err := s.bash(ctx, b.Setup, 0); err != nil {
			return fmt.Errorf("line %d: what the page takes for granted: %w\n%s", b.Line, err, out)
		}
	}
	begin := time.Now()
	if err := s.perform(ctx, b); err != nil {
		return fmt.Errorf("line %d: %w", b.Line, err)
	}
	s.report("line %d: %s, %.1f s", b.Line, b.Kind, time.Since(begin).Seconds())
	return nil
}

func (s *session) perform(ctx context.Context, b Block) error {
	b.Text = s.names.Replace(b.Text)
	switch {
	case b.File != "":
		return os.WriteFile(filepath.Join(s.dir, b.File), []byte(b.Text), 0o644)
	case b.Kind == YAML:
		return s.dryRun(ctx, b.Text)
	case b.Kind == Shell:
		out, err := s.commands(ctx, b, b.Text)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	case b.Kind == Console:
		return s.console(ctx, b)
	}
	return nil
}

// dryRun asks the API server to accept complete objects; a part of one says nothing alone.
func (s *session) dryRun(ctx context.Context, text string) error {
	if !strings.HasPrefix(text, "apiVersion:") && !strings.Contains(text, "\napiVersion:") {
		return nil
	}
	name := filepath.Join(s.dir, "object.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return err
	}
	if out, err := s.bash(ctx, "kubectl apply --dry-run=server --validate=strict -f object.yaml\n", 0); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (s *session) console(ctx context.Context, b Block) error {
	commands, err := b.Commands()
	if err != nil {
		return err
	}
	for i, command := range commands {
		one := b
		if i < len(commands)-1 {
			one.Exit = 0
		}
		out, err := s.commands(ctx, one, command.Text+"\n")
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command.Text, err, out)
		}
		if missing := Differs(command.Want, out); missing != "" {
			return fmt.Errorf("%s printed %s:\n%s", command.Text, missing, out)
		}
	}
	return nil
}

func (s *session) commands(ctx context.Context, b Block, text string) (string, error) {
	if b.Node == "" {
		return s.bash(ctx, text, b.Exit)
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit(blockLimit))
	defer cancel()
	var out bytes.Buffer
	code, err := s.lab.Exec(ctx, s.names.Replace(b.Node), nil, &out, &out, "bash", "-eo", "pipefail", "-c", text)
	if err == nil && code != b.Exit {
		err = fmt.Errorf("exit status %d, want %d", code, b.Exit)
	}
	return out.String(), err
}

// bash runs commands in the shell of the page, which keeps its variables. They cannot read the shell's own input.
func (s *session) bash(ctx context.Context, text string, exit int) (string, error) {
	s.count++
	name := filepath.Join(s.dir, fmt.Sprintf(".block-%d", s.count))
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return "", err
	}
	run, end := ". "+name+" </dev/null", fmt.Sprintf("end-of-block-%d", s.count)
	if exit != 0 { // the status of the last command; the shell itself goes on
		run = fmt.Sprintf("status=0; bash %s </dev/null || status=$?; [ $status = %d ] || { echo \"exit status $status, want %d\"; exit 1; }", name, exit, exit)
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit(blockLimit))
	defer cancel()
	if _, err := fmt.Fprintf(s.stdin, "%s\necho; echo %s\n", run, end); err != nil {
		return "", fmt.Errorf("the shell has ended: %w", err)
	}
	out, err := s.output.until(ctx, end+"\n")
	return strings.TrimSuffix(out, "\n"), err
}
