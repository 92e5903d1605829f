//go:build reallvm

package lvmtest

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// promised is what the journal says of one volume or snapshot.
type promised struct {
	made, deleting, deleted bool
	size, asked             lvm.Bytes
	content                 string // "": unknown
}

// promises are by name.
type promises map[string]*promised

// readPromises reads a journal, but for a line that was cut off.
func readPromises(journal string) promises {
	all := promises{}
	all.add(journal[:strings.LastIndexByte(journal, '\n')+1])
	return all
}

func (all promises) add(lines string) {
	for line := range strings.Lines(lines) {
		var sure, what, name, content string
		var size lvm.Bytes
		if n, _ := fmt.Sscan(line, &sure, &what, &name, &size, &content); n < 3 {
			continue // "works"
		}
		p := all[name]
		if p == nil {
			p = &promised{}
			all[name] = p
		}
		done := sure == "!"
		switch what {
		case "make":
			p.made, p.asked, p.content = done, size, content
		case "write":
			p.content = content
		case "extend":
			p.asked = size
		case "delete":
			p.deleting, p.deleted = true, done
		}
		if done && size > 0 {
			p.size = size
		}
	}
}
