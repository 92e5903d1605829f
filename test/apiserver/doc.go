// Package apiserver tests the driver's part in the Kubernetes API (package kube) against a real API server. etcd and
// kube-apiserver run on this machine, with the rights and the admission policy of the shipped manifest. The agents of two nodes
// hold tokens that are bound to their nodes, like those of their pods. LVM is the fake of lvm/lvmtest, and no other controller
// runs: the tests write what the scheduler, the kubelet and the snapshot controller would write.
package apiserver
