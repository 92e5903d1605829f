// Package lab is a Kubernetes cluster in a box: real control plane, real
// kubelets, real device-mapper, on one plain Linux machine that has none of
// them to offer (no KVM, no device-mapper in its kernel, no container engine).
//
// The nodes are user-mode Linux: a Linux kernel that runs as an ordinary
// process. Everything of one lab runs in its own network namespace,
// whose name is derived from the lab's folder, so that labs never meet each
// other and nothing listens on the machine itself.
//
// One flow, [Lab.Up]:
//
//   - install missing packages (debs.go)
//   - fetch the nodes' kernel (kernel.go), and build their root image (rootfs.go), the Kubernetes parts (build.go) and the images
//     (images.go) into the cache
//   - boot a golden node once, which imports the images, and keep its root image (golden.go)
//   - create the network namespace (netns.go), the certificates (pki.go) and the control plane (controlplane.go)
//   - boot the nodes, each on a copy-on-write file over the golden image (node.go), and wait until they are Ready
//
// Caveats: a node's memory is one virtual CPU's; what crosses the border to
// the kernel (fork, exec, mount) is about ten times slower than on the host.
// There is no kube-proxy and no cluster DNS: the API server itself answers at
// the Service address 10.96.0.1, pods reach each other by IP.
package lab
