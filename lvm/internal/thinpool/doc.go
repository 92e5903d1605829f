// Package thinpool extends the thin pools that exceed their autoextend threshold, and removes those that are empty for long.
package thinpool
