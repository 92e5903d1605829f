// Package ready tags new volumes as ready: many with one commit.
package ready
