package move

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// identity is the TLS key of this process. It is never written anywhere: another process has another one, which identifies it.
type identity struct {
	certificate tls.Certificate
	id          string
}

func newIdentity() (identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return identity{}, fmt.Errorf("cannot create a TLS key: %w", err)
	}
	// Peers compare the key alone, so the certificate says nothing.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return identity{}, fmt.Errorf("cannot create a TLS certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return identity{}, fmt.Errorf("cannot create a TLS certificate: %w", err)
	}
	return identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, KeyID(leaf)}, nil
}

// KeyID identifies the public key of a certificate: "sha256:" and the hash of its SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), in hexadecimal.
func KeyID(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// peerKey returns the KeyID of the key that the peer of a connection has proved to hold; "": it showed none.
func peerKey(state *tls.ConnectionState) string {
	if state == nil || len(state.PeerCertificates) == 0 {
		return ""
	}
	return KeyID(state.PeerCertificates[0])
}

// serverTLS demands a key of the peer. Whether it is the right one is the Authorizer's decision.
func (i identity) serverTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true}
}

// clientTLS accepts a server with this key alone. No authority signs the nodes' certificates, and no name is checked.
func (i identity) clientTLS(key string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares the key
		VerifyConnection: func(state tls.ConnectionState) error {
			if key == "" || peerKey(&state) != key {
				return errors.New("the peer has another key than the offer says")
			}
			return nil
		},
	}
}
