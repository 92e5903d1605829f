// Package measure has scenarios that measure, and prove little: I/O in a pod relative to a bare logical volume (datapath.go), and the
// requests and memory of the driver, idle and among the objects of a large cluster (scale.go). The copy of a volume that moves is compared with a
// raw one (moverate.go).
//
// The figures are notes and tables of the reporter. They mean something only on a machine that does nothing else.
package measure
