// Package power has the victim of the power cuts (build tag reallvm). test/e2e runs TestPowerVictim in a lab node and cuts the node's power
// meanwhile. The victim writes its requests and their results to a journal outside of the node. After the next boot it compares its volumes
// with the journal.
package power
