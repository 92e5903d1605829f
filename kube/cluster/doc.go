// Package cluster is what the parts of nodelvm-controller share: one watch for each kind of object, and the lease that selects the
// active process. The parts are kube/nodeloss, kube/claimevents, kube/scaledown and kube/nodegroup.
//
// The flow: Election.Run waits for the lease and then calls back, and its holder runs Objects. client-go's informers decode each object
// once, keep the few facts that the parts read (facts.go) and drop the rest. A part reads facts from memory, and the object itself from
// the API server before it changes anything.
//
// Caveats:
//   - Each kind has facts about all objects of the cluster. A volume or content without Node is not this driver's.
//   - The facts may be out of date. They select what a part reads, and prove nothing.
//   - Events do not come from client-go's recorder but from kubeclient.EventRecorder. That keeps one event for each object and
//     reason, which becomes Normal when its cause ends, and returns the error of a request, which the parts repeat.
package cluster
