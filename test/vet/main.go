// Command vet checks packages with the analyzers of go vet and those of linters.go. The go command runs it for each package, and caches
// what it finds like what it compiles:
//
//	go vet -vettool=$(go tool -n vet) ./...
//
// A comment //nolint:NAME (reason) at the end of a line, or alone on the line before, suppresses what the analyzer NAME finds there.
package main

import (
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	if file := os.Args[len(os.Args)-1]; strings.HasSuffix(file, ".cfg") && isForeign(file) {
		unitchecker.Run(file, nil)
	}
	unitchecker.Main(analyzers()...)
}

// module is the prefix of all packages of this repository.
const module = "github.com/nodelvm/nodelvm"

// isForeign reports whether the configuration of a run is for a package of another project. The go command wants the types of such
// a package, and what the analyzers know of it: these linters need only the types, and the rest would take minutes.
func isForeign(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false // unitchecker reports it
	}
	var config unitchecker.Config
	return json.Unmarshal(text, &config) == nil && config.VetxOnly && !strings.HasPrefix(config.ImportPath, module)
}
