package docrun

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is the language of a block.
type Kind string

// The kinds of blocks that this package knows.
const (
	Shell   Kind = "sh"
	Console Kind = "console"
	YAML    Kind = "yaml"
)

// Block is a fenced code block of a page.
type Block struct {
	Line   int // of the page, where the fence opens
	Kind   Kind
	Text   string
	NotRun string // the reason why the lab cannot run it
	With   string // the value or state that it needs
	Node   string // where the commands run; "" is the reader's machine
	Exit   int    // the status of the last command
	File   string // whose content the block is
	Setup  string // commands that run before the block
}

var (
	comment  = regexp.MustCompile(`(?s)<!--(.*?)-->\n`)
	fence    = regexp.MustCompile("^( *)```(.*)$")
	exitWord = regexp.MustCompile(`^exit status (\d+)$`)
)

// Parse reads the blocks of a page in order.
func Parse(page string) ([]Block, error) {
	var blocks []Block
	var notes []string
	lines := strings.SplitAfter(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], "\n")
		switch open := fence.FindStringSubmatch(line); {
		case open != nil:
			end := i + 1
			for end < len(lines) && strings.TrimRight(lines[end], "\n") != open[1]+"```" {
				end++
			}
			if end == len(lines) {
				return nil, fmt.Errorf("line %d: the block does not end", i+1)
			}
			block, err := newBlock(open[2], body(lines[i+1:end], open[1]), notes)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			block.Line = i + 1
			blocks, notes, i = append(blocks, block), nil, end
		case strings.HasPrefix(strings.TrimSpace(line), "<!--"):
			last := i
			for last < len(lines)-1 && !strings.Contains(lines[last], "-->") {
				last++
			}
			if found := comment.FindStringSubmatch(strings.Join(lines[i:last+1], "")); found != nil {
				notes = append(notes, strings.TrimSpace(found[1]))
			}
			i = last
		case line != "": // a comment that no block follows is for the page's authors
			if slices.ContainsFunc(notes, func(note string) bool { return strings.HasPrefix(note, "setup:") }) {
				return nil, fmt.Errorf("line %d: the setup before it belongs to no block", i+1)
			}
			notes = nil
		}
	}
	return blocks, nil
}

// body is the text of a block, without the indentation of its fence.
func body(lines []string, indent string) string {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.TrimPrefix(line, indent))
	}
	return text.String()
}

// newBlock applies the comments before a block to it.
func newBlock(info, text string, notes []string) (Block, error) {
	b := Block{Kind: Kind(strings.TrimSpace(info)), Text: text}
	for _, note := range notes {
		if reason, ok := strings.CutPrefix(note, "not run:"); ok {
			b.NotRun = strings.TrimSpace(reason)
			if b.NotRun == "" {
				return b, fmt.Errorf("the comment %q lacks a reason", note)
			}
		} else if value, ok := strings.CutPrefix(note, "with "); ok {
			b.With = value
		} else if commands, ok := strings.CutPrefix(note, "setup:"); ok {
			b.Setup = strings.TrimSpace(commands) + "\n"
		} else if node, ok := strings.CutPrefix(note, "on "); ok {
			b.Node = node
		} else if name, ok := strings.CutPrefix(note, "file "); ok {
			b.File = name
		} else if status := exitWord.FindStringSubmatch(note); status != nil {
			b.Exit, _ = strconv.Atoi(status[1]) // digits
		} else if note != "" {
			return b, fmt.Errorf("unknown comment %q: see the package docrun", note)
		}
	}
	return b, nil
}

// Command is a command of a console block, with what it prints.
type Command struct {
	Text string
	Want []string // lines; none says nothing about the output
}

// Commands reads a console block.
func (b Block) Commands() ([]Command, error) {
	var all []Command
	for line := range strings.Lines(b.Text) {
		line = strings.TrimRight(line, "\n")
		if text, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, Command{Text: text})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("line %d: the console block does not begin with a command (\"$ \")", b.Line)
		}
		last := &all[len(all)-1]
		if strings.HasSuffix(last.Text, `\`) && len(last.Want) == 0 {
			last.Text += "\n" + line
			continue
		}
		last.Want = append(last.Want, line)
	}
	return all, nil
}
