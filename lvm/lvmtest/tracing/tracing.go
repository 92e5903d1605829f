// Package tracing reads the system call at which a thread has stopped that a test traces with ptrace(2).
package tracing

// Call is a system call that is about to be made, with its first three arguments.
type Call struct {
	Number, First, Second, Third uint64
}
