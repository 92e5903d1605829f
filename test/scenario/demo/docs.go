package demo

import (
	"time"

	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Docs follows pages of the documentation, a step each, and removes what they leave.
func Docs(pages []docrun.Page) []scenario.Scenario {
	sc := scenario.Scenario{Title: "The commands in the documentation work"}
	for _, page := range pages {
		// A page has many blocks, and docrun limits the time of each.
		sc.Steps = append(sc.Steps, scenario.Step{Says: "the commands of docs/" + page.Path + " run as written", Limit: 30 * time.Minute, Prove: scenario.Follow(page)})
	}
	return []scenario.Scenario{sc, {Title: "The pages' objects are deleted", Steps: []scenario.Step{{Says: "no volume and no pool is left", Prove: scenario.DeleteDocsObjects}}}}
}
