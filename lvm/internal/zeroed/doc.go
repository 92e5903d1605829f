// Package zeroed keeps which free extents of each volume group are known to be zero, from read to read (Watch) and across
// restarts (Files).
package zeroed
