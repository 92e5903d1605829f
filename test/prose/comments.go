package prose

import (
	"regexp"
	"strings"
)

var (
	comment     = regexp.MustCompile(`(?:^|\s)#+(?: (.*))?$`)
	description = regexp.MustCompile(`"?(?:description|summary|message|title)"?: +["']?([^|>{].*?)["']?[,}]*$`)
	opening     = regexp.MustCompile(`\{\{-? */\*|<!--`)
	closing     = regexp.MustCompile(`\*/ *-?\}\}|-->`)
	template    = regexp.MustCompile(`\{\{.*?\}\}`)
	key         = regexp.MustCompile(`^\s*(?:- )?[\w."/-]+:(?: |$)|^\s*- \S+$|^\s*[\[{]`)
)

// Comments returns, for each line of a YAML file, a chart's template or a JSON schema, the comment or the description on it.
// Lines of YAML that are commented out are no prose.
func Comments(source []byte) map[int][]string {
	found := map[int][]string{}
	inside := false
	for i, line := range strings.Split(string(source), "\n") {
		text := ""
		switch {
		case inside || opening.MatchString(line):
			inside = !closing.MatchString(line)
			text = closing.ReplaceAllString(opening.ReplaceAllString(line, ""), "")
		case comment.MatchString(line):
			text = comment.FindStringSubmatch(line)[1]
			if key.MatchString(text) {
				text = ""
			}
		case description.MatchString(line):
			text = description.FindStringSubmatch(line)[1]
		}
		if text = strings.TrimSpace(template.ReplaceAllString(text, "X")); text != "" {
			found[i+1] = []string{text}
		}
	}
	return found
}

// Notes returns the lines of a chart's NOTES.txt that are prose: neither indented commands nor template actions alone.
func Notes(source []byte) map[int][]string {
	found := map[int][]string{}
	for i, line := range strings.Split(string(source), "\n") {
		if text := template.ReplaceAllString(line, "X"); strings.TrimLeft(text, " X") != "" && !strings.HasPrefix(text, " ") {
			found[i+1] = []string{text}
		}
	}
	return found
}
