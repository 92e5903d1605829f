package lab

import (
	"slices"
	"testing"
)

// TestOtherKubernetes: another version of Kubernetes does not change the sidecars, and the lab compiles the rest in another folder.
func TestOtherKubernetes(t *testing.T) {
	file := versions{"KUBERNETES_VERSION": "v1.37.2", "KUBERNETES_STAGING_VERSION": "v0.37.2"}
	same, err := file.withKubernetes("")
	must(t, err)
	other, err := file.withKubernetes("v1.32.13")
	must(t, err)
	usual, mixed := modules(same), modules(other)
	if len(mixed) != len(usual)+1 || mixed[0].name != "kubernetes" || mixed[0].version != "v1.37.2" || mixed[0].staging != "v0.37.2" || len(mixed[0].guests) != 2 {
		t.Fatalf("the sidecars are compiled with %+v", mixed[0])
	}
	k := mixed[1]
	if k.name == "kubernetes" || k.version != "v1.32.13" || len(k.guests) != 0 || k.commands["kubelet"] == "" || k.commands["csi-provisioner"] != "" {
		t.Errorf("Kubernetes is compiled with %+v", k)
	}
	if got := []string{k.stagingVersion("k8s.io/api"), k.stagingVersion("k8s.io/cri-client")}; !slices.Equal(got, []string{"v0.32.13", "v0.32.3"}) {
		t.Errorf("staging versions %q", got)
	}
	if here, there := suiteModule(same), suiteModule(other); !slices.Equal(here.guests, usual[0].guests) || there.version != "v1.32.13" || len(there.guests) != 0 {
		t.Errorf("the suite requires other modules than Kubernetes' commands: %+v, %+v", here, there)
	}
	for _, bad := range []string{"1.34.4", "v1.34", "v2.0.0", "v1.34.4\nreplace"} {
		if _, err := file.withKubernetes(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if file["KUBERNETES_VERSION"] != "v1.37.2" {
		t.Error("the file's versions were changed")
	}
}

func TestSuites(t *testing.T) {
	v := versions{"DEBIAN_KERNEL_SUITE": "forky", "DEBIAN_NODE_SUITE": "bookworm"}
	if err := v.setSuites(""); err != nil || v["DEBIAN_KERNEL_SUITE"] != "forky" {
		t.Errorf("%v, %v", v, err)
	}
	if err := v.setSuites("trixie/sid"); err != nil || v["DEBIAN_KERNEL_SUITE"] != "trixie" || v["DEBIAN_NODE_SUITE"] != "sid" {
		t.Errorf("%v, %v", v, err)
	}
	for _, bad := range []string{"trixie", "trixie/", "../x/y", "a/b/c"} {
		if err := v.setSuites(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
