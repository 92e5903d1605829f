package lvm

import (
	"strings"

	"github.com/nodelvm/nodelvm/api"
)

// UnknownParameter returns the first parameter that neither the driver nor its sidecars know; "" if there is none.
func UnknownParameter(parameters map[string]string) (unknown string) {
	for name := range parameters {
		if !isParameter(name) && !strings.HasPrefix(name, api.ParameterPrefix) && (unknown == "" || name < unknown) {
			unknown = name
		}
	}
	return unknown
}

func isParameter(name string) bool {
	_, is := FindParameter(name)
	return is
}

// DidYouMean is the end of a message about an unknown parameter: " (did you mean NAME?)", or "" if it resembles no known one.
func DidYouMean(unknown string) string {
	if nearest := NearestParameter(unknown); nearest != "" {
		return " (did you mean " + nearest + "?)"
	}
	return ""
}

// NearestParameter returns the known parameter that an unknown one most resembles; "" if it resembles none.
func NearestParameter(unknown string) string {
	return nearestOf(unknown, append(ParameterNames(), api.ParameterFSType))
}

func nearestOf(unknown string, names []string) string {
	nearest, least := "", 0
	for _, name := range names {
		short := strings.TrimPrefix(name, api.ParameterPrefix)
		changes := editDistance(strings.ToLower(unknown), strings.ToLower(short))
		if changes <= max(1, len(short)/3) && (nearest == "" || changes < least) {
			nearest, least = name, changes
		}
	}
	return nearest
}

// editDistance is the number of characters to insert, remove or replace, or of neighbours to exchange, that turns a into b.
func editDistance(a, b string) int {
	if len(a) > 64 {
		return len(a) // it resembles nothing, and its length is another's choice
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
