// Package certtest makes certificate authorities and certificates for tests. Nothing it makes is
// fit for anything else. Its functions panic on errors, which only a full disk or a name that is
// no host, address or URI can cause.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CA is a certificate authority. It is safe for concurrent use.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// lifetime is how long certificates are valid, unless the caller says when they end. It begins
// an hour ago, so that clocks may differ.
const lifetime = 24 * time.Hour

// NewCA returns a new authority with a name.
func NewCA(name string) *CA {
	ca := &CA{key: newKey()}
	template := newTemplate(time.Now().Add(lifetime))
	template.Subject.CommonName = name
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	ca.certificate = ca.sign(template, template, ca.key)
	return ca
}

// Leaf returns a certificate for servers and clients, with its key. Names are host names, IP
// addresses, URIs (with "://"), e-mail addresses (with "@"), and a common name after "CN=".
func (ca *CA) Leaf(names ...string) tls.Certificate {
	return ca.LeafUntil(time.Now().Add(lifetime), names...)
}

// LeafUntil is as Leaf, for a certificate that is valid until a time, which may be past.
func (ca *CA) LeafUntil(end time.Time, names ...string) tls.Certificate {
	template := newTemplate(end)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, name := range names {
		common, isCommon := strings.CutPrefix(name, "CN=")
		ip := net.ParseIP(name)
		switch {
		case isCommon:
			template.Subject.CommonName = common
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case strings.Contains(name, "://"):
			template.URIs = append(template.URIs, must(url.Parse(name)))
		case strings.Contains(name, "@"):
			template.EmailAddresses = append(template.EmailAddresses, name)
		default:
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key := newKey()
	leaf := ca.sign(template, ca.certificate, key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// Certificate returns the authority's certificate.
func (ca *CA) Certificate() *x509.Certificate { return ca.certificate }

// Pool returns a pool that has the authority's certificate alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.certificate)
	return pool
}

// WriteFile writes the authority's certificate to a file and returns its path.
func (ca *CA) WriteFile(path string) string {
	return write(path, "CERTIFICATE", ca.certificate.Raw)
}

// WriteFiles writes a certificate to NAME.crt and its key to NAME.key, in PEM. A file that is
// there is replaced in one step.
func WriteFiles(dir, name string, c tls.Certificate) (cert, key string) {
	der := must(x509.MarshalPKCS8PrivateKey(c.PrivateKey))
	key = write(filepath.Join(dir, name+".key"), "PRIVATE KEY", der)
	return write(filepath.Join(dir, name+".crt"), "CERTIFICATE", c.Certificate[0]), key
}

func write(path, kind string, der []byte) string {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	check(os.WriteFile(path+".new", text, 0o600))
	check(os.Rename(path+".new", path))
	return path
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// newTemplate returns a certificate with a random serial number. It begins at least a lifetime
// before its end, as one that has ended must have begun.
func newTemplate(end time.Time) *x509.Certificate {
	begin := time.Now().Add(-time.Hour)
	if end.Before(begin.Add(time.Hour)) {
		begin = end.Add(-lifetime)
	}
	return &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))),
		Subject:      pkix.Name{Organization: []string{"hitline tests"}},
		NotBefore:    begin, NotAfter: end,
	}
}

// sign returns the certificate of a key, signed by the authority.
func (ca *CA) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), ca.key))
	return must(x509.ParseCertificate(der))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic("certtest: " + err.Error())
	}
}
