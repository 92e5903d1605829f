package diagrams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Result is what the library made of one diagram.
type Result struct {
	Error string  // why the diagram cannot be rendered
	Width float64 // of the picture, in pixels
	Texts int     // the labels in it
}

// Browser renders pages: Debian's package chromium-headless-shell.
const Browser = "chromium-headless-shell"

var block = regexp.MustCompile("(?ms)^```mermaid\n(.*?)^```")

// Blocks returns the diagrams of a Markdown page.
func Blocks(page []byte) (diagrams []string) {
	for _, found := range block.FindAllSubmatch(page, -1) {
		diagrams = append(diagrams, string(found[1]))
	}
	return diagrams
}

// page loads the library and renders each diagram into the page, where the browser lays it out as a reader's would.
const page = `<!DOCTYPE html><meta charset="utf-8"><body><script src="%s"></script><script>
(async () => {
  mermaid.initialize({startOnLoad: false, securityLevel: "strict"});
  const results = [];
  for (const [i, text] of %s.entries()) {
    try {
      const target = document.body.appendChild(document.createElement("div"));
      target.innerHTML = (await mermaid.render("diagram" + i, text)).svg;
      const svg = target.querySelector("svg");
      results.push({Error: "", Width: svg.getBoundingClientRect().width, Texts: svg.querySelectorAll("text, foreignObject").length});
    } catch (error) {
      results.push({Error: String(error), Width: 0, Texts: 0});
    }
  }
  const pre = document.body.appendChild(document.createElement("pre"));
  pre.id = "results";
  pre.textContent = JSON.stringify(results);
})();
</script></body>`

var results = regexp.MustCompile(`(?s)<pre id="results">(.*?)</pre>`)

// Render renders the diagrams with the library, a file of the npm package mermaid, and returns a result for each.
func Render(ctx context.Context, library, folder string, diagrams []string) ([]Result, error) {
	texts, err := json.Marshal(diagrams) // escapes < and >, so no text ends the script
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "diagrams.html")
	if err := os.WriteFile(file, fmt.Appendf(nil, page, "file://"+library, texts), 0o600); err != nil {
		return nil, err
	}
	// The browser's sandbox needs another user than root; it only sees the diagrams of this checkout.
	command := exec.CommandContext(ctx, Browser, "--no-sandbox", "--disable-gpu", "--user-data-dir="+folder,
		"--virtual-time-budget=60000", "--dump-dom", "file://"+file)
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("run %s: %w", Browser, err)
	}
	return parse(output, len(diagrams))
}

func parse(document []byte, want int) (all []Result, err error) {
	found := results.FindSubmatch(document)
	if found == nil {
		return nil, fmt.Errorf("the page holds no results; the browser printed %.300q", document)
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), &all); err != nil {
		return nil, fmt.Errorf("cannot parse the results: %w", err)
	}
	if len(all) != want {
		return nil, fmt.Errorf("%d results for %d diagrams", len(all), want)
	}
	return all, nil
}
