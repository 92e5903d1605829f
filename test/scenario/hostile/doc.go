// Package hostile compares how fast a user's namespace is served without and during the attack of a tenant.
//
// The tenant may do everything in its own namespace, within a quota. It has 500 malicious objects, and a client that creates, expands, snapshots and
// deletes volumes at random and waits for nothing. Meanwhile the drivers are killed. The user creates a pod with a volume, expands, snapshots, restores
// and deletes it, again and again.
//
//	user.go     what the user does, and how long it takes
//	objects.go  the malicious objects
//	client.go   the tenant's client
//	watched.go  kills, and the memory of the drivers
//	figures.go  medians and the table
package hostile
