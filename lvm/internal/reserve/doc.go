// Package reserve decides on the volumes of one pod together: all of them are planned, and their capacity reserved until they
// are created, or all are refused. It keeps its decisions in memory only.
package reserve
