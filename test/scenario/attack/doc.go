// Package attack has the attacks of tenants and of a thief. A tenant has a raw block volume and a pod without privilege, and writes on the volume what
// the node could take for its own or would have to parse. The thief has the token of one node's driver.
//
// Each attack is a forgery or a request, after which the published capacity, the other tenant's volume and the run of the node must be as before.
// The forgeries are built on the attacked node with LVM's and the file systems' own tools, and then changed here.
package attack
