// Package prose copies what users read but Vale does not find to Markdown files that Vale checks: the messages in Go code, and the
// comments and descriptions of the chart. Line N of a copy is line N of its source.
package prose
