// Package moving tests the move of volumes between two groups on real LVM: each group stands for a node. The tests have the build tag reallvm.
package moving
