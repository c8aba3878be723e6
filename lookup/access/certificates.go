package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Certificates are those that the client of a connection has shown over TLS. The zero value is that of a client
// without. Certificates are not safe for concurrent use.
type Certificates struct {
	shown []*x509.Certificate // its own first
	roots *x509.CertPool      // that they were verified with, nil if that is not known
	end   time.Time           // when they are no longer valid
}

// CertificatesOf returns the verified ones of a connection. roots are those of the handshake, nil if they are not
// known: then the first Verify verifies again.
func CertificatesOf(state *tls.ConnectionState, roots *x509.CertPool) Certificates {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Certificates{}
	}
	return Certificates{shown: state.PeerCertificates, roots: roots, end: endOf(state.VerifiedChains)}
}

// Names returns the names that the client's own certificate has: DNS names, URIs, e-mail addresses and the common name.
func (c *Certificates) Names() []string {
	if len(c.shown) == 0 {
		return nil
	}
	own := c.shown[0]
	names := slices.Clone(own.DNSNames)
	for _, uri := range own.URIs {
		names = append(names, uri.String())
	}
	return append(append(names, own.EmailAddresses...), own.Subject.CommonName)
}

// End returns when the certificates, or those that lead to an authority, are no longer valid; zero if there are none.
func (c *Certificates) End() time.Time { return c.end }

// Verify makes the certificates those of a listener whose clients need a certificate of these roots now; nil: they
// need none, and certificates mean nothing. It returns an error if a handshake would fail now. It computes only if the
// roots have changed. It does not look at End.
func (c *Certificates) Verify(roots *x509.CertPool, now time.Time) error {
	switch {
	case roots == nil:
		*c = Certificates{}
		return nil
	case roots == c.roots || roots.Equal(c.roots):
		c.roots = roots
		return nil
	case len(c.shown) == 0:
		return errors.New("the listener requires a certificate")
	}
	options := x509.VerifyOptions{
		Roots: roots, Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, other := range c.shown[1:] {
		options.Intermediates.AddCert(other)
	}
	chains, err := c.shown[0].Verify(options)
	if err != nil {
		return fmt.Errorf("its certificate is not accepted any more: %w", err)
	}
	c.roots, c.end = roots, endOf(chains)
	return nil
}

// endOf returns when the last of the chains ends: when one of its certificates does.
func endOf(chains [][]*x509.Certificate) (end time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(end) {
			end = first
		}
	}
	return end
}
