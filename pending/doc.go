// Package pending decides why a claim has no volume yet. It reads nothing itself: Explain is a function of objects of the API and of
// what each node's driver reports (package statuspage).
//
//	claim, class, pods, nodes, status pages -> Explain -> causes of the claim, obstacles on each node
//
// objects.go has what the callers read from single objects: the node of a volume, and the claims of a pod.
//
// It repeats the scheduler's decisions about the node itself (taints, selector, affinity, other volumes of the pod) with
// Kubernetes' own code. It knows nothing of CPU, memory, ports, and rules between pods: the events of the pod name those.
package pending
