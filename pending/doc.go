// Package pending decides why a claim has no volume yet, and why a pod does not start whose claims have theirs. It reads nothing
// itself: Explain and ExplainPod are functions of objects of the API, of their events, and of what each node's driver reports
// (package report).
//
//	claim, class, pods, nodes, status pages -> Explain -> causes of the claim, obstacles on each node
//
//	explain     the causes, in the order of an answer
//	source      where a claim's data comes from, and claims that csi-provisioner creates no volume for
//	refusal     what events say: csi-provisioner's last one about the claim, and the driver's warnings
//	node        the obstacles of one node
//	registration  whether Kubernetes knows the driver of a node
//	together    whether the waiting claims of a pod fit on a node together
//	pod         ExplainPod
//	scheduler   what the scheduler says of a pod
//	objects     what the callers read from single objects: the node of a volume, and the claims of a pod
//
// It repeats the scheduler's decisions about the node itself (taints, selector, affinity, other volumes of the pod) with
// Kubernetes' own code. It knows nothing of CPU, memory, ports, and rules between pods: it quotes what the scheduler says of those.
// An answer names as a cause only what an object, an event or a driver says; what is not known, it calls unknown.
package pending
