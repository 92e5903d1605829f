package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the lab's certificate authority. Its key is only in memory.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// identity is what a certificate says about its holder.
type identity struct {
	user   string   // common name: the user in Kubernetes
	groups []string // organizations: the groups
	ips    []net.IP // addresses to serve at
	names  []string // host names to serve as
}

const certLife = 365 * 24 * time.Hour

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certTemplate(identity{user: "nodelvm-lab"}, 1)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// issue writes base.crt and base.key for who.
func (a *authority) issue(base string, who identity) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 62))
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, certTemplate(who, serial.Int64()), a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(base+".crt", "CERTIFICATE", der), writeKey(base+".key", key))
}

func certTemplate(who identity, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: who.user, Organization: who.groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:  who.ips,
		DNSNames:     who.names,
	}
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func (l *Lab) pki(name string) string { return filepath.Join(l.dir, "pki", name) }

// nodeFile returns the path of a file that only n uses; the node has it at /mnt/lab/.lab/NODE/.
func (l *Lab) nodeFile(n node, name string) string {
	return filepath.Join(l.systemDir(), n.name(), name)
}

// writePKI issues all certificates of the lab, and writes the kubeconfigs with them.
func (l *Lab) writePKI(nodes []node) error {
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.pki(""), 0o700); err != nil {
		return err
	}
	errs := []error{
		writePEM(l.pki("ca.crt"), "CERTIFICATE", ca.cert.Raw),
		writePEM(filepath.Join(l.systemDir(), "ca.crt"), "CERTIFICATE", ca.cert.Raw),
		ca.issue(l.pki("apiserver"), identity{
			user:  "kube-apiserver",
			ips:   []net.IP{net.ParseIP(serviceIP), net.ParseIP(bridgeIP), net.ParseIP("127.0.0.1")},
			names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		}),
		ca.issue(l.pki("kubelet-client"), identity{user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}}),
		ca.issue(l.pki("service-account"), identity{user: "service-accounts"}),
	}
	for name, who := range map[string]identity{
		"admin":                   {user: "admin", groups: []string{"system:masters"}},
		"kube-controller-manager": {user: "system:kube-controller-manager"},
		"kube-scheduler":          {user: "system:kube-scheduler"},
		"snapshot-controller":     {user: "snapshot-controller", groups: []string{"system:masters"}},
		"services":                {user: "services", groups: []string{"system:masters"}},
	} {
		errs = append(errs, ca.issue(l.pki(name), who), writeKubeconfig(l.pki(name+".kubeconfig"), l.pki("ca.crt"), l.pki(name)))
	}
	for _, n := range nodes {
		errs = append(errs, l.writeNodePKI(ca, n))
	}
	return errors.Join(errs...)
}

// writeNodePKI issues one certificate for n's kubelet, for both server and client, and writes a kubeconfig with the node's paths.
func (l *Lab) writeNodePKI(ca *authority, n node) error {
	if err := os.MkdirAll(l.nodeFile(n, ""), 0o755); err != nil {
		return err
	}
	inside := "/mnt/lab/.lab/" + n.name()
	return errors.Join(
		ca.issue(l.nodeFile(n, "kubelet"), identity{
			user: "system:node:" + n.name(), groups: []string{"system:nodes"},
			ips: []net.IP{net.ParseIP(n.ip())}, names: []string{n.name()},
		}),
		writeKubeconfig(l.nodeFile(n, "kubeconfig"), "/mnt/lab/.lab/ca.crt", inside+"/kubelet"),
	)
}

// writeKubeconfig writes a kubeconfig that refers to base.crt and base.key.
func writeKubeconfig(file, caFile, base string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {server: "https://%s:%d", certificate-authority: %q}
users:
- name: lab
  user: {client-certificate: %q, client-key: %q}
contexts:
- name: lab
  context: {cluster: lab, user: lab}
current-context: lab
`, serviceIP, apiPort, caFile, base+".crt", base+".key"), 0o600)
}
