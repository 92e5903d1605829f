package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// userOf returns a pod on node-1 with a claim.
func userOf(claim, name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{NodeName: "node-1",
		Containers: []corev1.Container{{Name: "c"}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
}

func budget(name string, desired, expected int32) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
		Status: policyv1.PodDisruptionBudgetStatus{DesiredHealthy: desired, ExpectedPods: expected}}
}

// failingBlockPod returns a pod of user 1000 with a raw block volume, whose container ended with an error.
func failingBlockPod() corev1.Pod {
	pod := userOf("data-db-0", "db-0")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1000))}
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/data"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
	return pod
}

func waitingSnapshot(name string) namespaceSnapshot {
	s := namespaceSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	s.Spec.Source.Claim = "data-db-1"
	return s
}

// TestDoctorIgnoresPodsThatWork: working pods, and volumes of other drivers, are no findings.
func TestDoctorIgnoresPodsThatWork(t *testing.T) {
	for name, plant := range map[string]func(f *facts){
		"budget that allows an eviction": func(f *facts) {
			f.pods, f.budgets = []corev1.Pod{userOf("data-db-0", "db-0")}, []policyv1.PodDisruptionBudget{budget("b", 1, 2)}
		},
		"budget without pods": func(f *facts) {
			f.pods, f.budgets = []corev1.Pod{userOf("data-db-0", "db-0")}, []policyv1.PodDisruptionBudget{budget("b", 0, 0)}
		},
		"budget of pods without volumes": func(f *facts) {
			f.pods, f.budgets = []corev1.Pod{userOf("other", "db-0")}, []policyv1.PodDisruptionBudget{budget("b", 1, 1)}
		},
		"budget of an operator": func(f *facts) {
			f.pods, f.budgets = []corev1.Pod{userOf("data-db-0", "db-0")}, []policyv1.PodDisruptionBudget{budget("primary", 1, 1)}
			f.budgets[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "postgresql.cnpg.io/v1", Kind: "Cluster", Name: "pg", Controller: ptr.To(true)}}
		},
		"budget of an operator's pods": func(f *facts) {
			f.pods, f.budgets = []corev1.Pod{userOf("data-db-0", "db-0")}, []policyv1.PodDisruptionBudget{budget("primary", 1, 1)}
			f.pods[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "postgresql.cnpg.io/v1", Kind: "Cluster", Name: "pg", Controller: ptr.To(true)}}
		},
		"root": func(f *facts) {
			pod := failingBlockPod()
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To(int64(0))}
			f.pods = []corev1.Pod{pod}
		},
		"container that runs": func(f *facts) {
			pod := failingBlockPod()
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			f.pods = []corev1.Pod{pod}
		},
		"block volume of another driver": func(f *facts) { f.volumes, f.pods = f.volumes[1:], []corev1.Pod{failingBlockPod()} },
		"released volume whose claim's name another driver's claim has": func(f *facts) {
			f.volumes[0].Status.Phase, f.pods = corev1.VolumeReleased, []corev1.Pod{failingBlockPod()}
		},
		"pod that the kubelet starts": func(f *facts) {
			pod := userOf("data-db-0", "db-0")
			pod.Status.Phase = corev1.PodPending
			f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{pod}
		},
		"pod that the scheduler has not considered": func(f *facts) {
			pod := unscheduled("data-db-0", "db-0")
			pod.Status.Conditions = nil
			f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{pod}
		},
		"pod that waits for its turn": func(f *facts) {
			pod := unscheduled("data-db-0", "db-0")
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}}
			f.claims, f.pods = []corev1.PersistentVolumeClaim{expandedClaim("10Gi")}, []corev1.Pod{pod}
		},
		"missing claim of other drivers": func(f *facts) { f.pods = []corev1.Pod{unscheduled("other", "db-0")} },
		"expansion in progress": func(f *facts) {
			f.claims = []corev1.PersistentVolumeClaim{expandedClaim("20Gi")}
		},
		"snapshot that is ready": func(f *facts) {
			s := waitingSnapshot("snap-1")
			s.Status.Ready = ptr.To(true)
			f.snapshots = []namespaceSnapshot{s}
		},
		"snapshot of another driver": func(f *facts) {
			s := waitingSnapshot("snap-2")
			s.Spec.Source.Claim = "other"
			f.snapshots = []namespaceSnapshot{s}
		},
	} {
		f := sound()
		plant(f)
		if found := examine(f).Findings; len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
