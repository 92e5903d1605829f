// Package recovery completes or undoes what an interruption left in the volume groups: at the start, and when a group appears.
package recovery
