// Package apiserver tests the driver's part in the Kubernetes API (package kube) against a real API server: etcd and
// kube-apiserver run on this machine, with the shipped manifest's rights and admission policy in force; the agents of
// two nodes hold tokens that are bound to their nodes, as their pods would. LVM is the fake of lvm/lvmtest, and no other
// controller runs: what the scheduler, the kubelet and the snapshot controller would write, the tests write.
package apiserver
