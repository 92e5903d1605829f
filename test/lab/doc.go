// Package lab runs a Kubernetes cluster on one plain Linux machine, with a real control plane, real kubelets and a real
// device-mapper. The machine needs no KVM, no device-mapper in its kernel, and no container engine.
//
// The nodes are user-mode Linux: a Linux kernel that runs as an ordinary process. All processes of a lab run in its own network
// namespace, whose name derives from the lab's folder. So labs cannot affect each other, and nothing listens on the machine itself.
//
// [Lab.Up] takes these steps:
//
//   - install missing packages (debs.go)
//   - fetch the nodes' kernel (kernel.go), and build their root image (rootfs.go), the Kubernetes parts (build.go) and the images
//     (images.go) into the cache
//   - boot a golden node once, which imports the images, and keep its root image (golden.go)
//   - create the network namespace (netns.go), the certificates (pki.go) and the control plane (controlplane.go)
//   - boot the nodes, each on a copy-on-write file over the golden image (node.go), and wait until they are Ready
//
// Caveats: a node has one virtual CPU. Work that enters the kernel (fork, exec, mount) is about ten times slower than on the host.
// There is no kube-proxy: the API server itself has the Service address 10.96.0.1. Other Services and names work only with
// UpOptions.Services (services.go); else pods reach each other by IP address.
package lab
