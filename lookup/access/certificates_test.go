package access

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
)

// A chain ends with the first of its certificates, and a client's with the last of its chains.
func TestEndOfChains(t *testing.T) {
	until := func(days ...int) (chain []*x509.Certificate) {
		for _, n := range days {
			chain = append(chain, &x509.Certificate{NotAfter: time.Unix(0, 0).AddDate(0, 0, n)})
		}
		return chain
	}
	end := endOf([][]*x509.Certificate{until(9, 3, 7), until(5, 9), until(4, 4)})
	require.Equal(t, time.Unix(0, 0).AddDate(0, 0, 5), end)
}

// Certificates follow the authorities of the listener. Without any they mean nothing.
func TestVerify(t *testing.T) {
	first, second, now := certtest.NewCA("first"), certtest.NewCA("second"), time.Now()
	both := first.Pool()
	both.AddCert(second.Certificate())
	leaf := first.Leaf("engine.example.com", "CN=engine").Leaf
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, first.Certificate()}}}
	for name, roots := range map[string]*x509.CertPool{"those of the handshake": first.Pool(), "unknown": nil} {
		c := CertificatesOf(state, roots)
		require.Equal(t, first.Certificate().NotAfter, c.End(), name)
		for _, roots := range []*x509.CertPool{first.Pool(), both, first.Pool()} {
			require.NoError(t, c.Verify(roots, now), name)
			require.Equal(t, []string{"engine.example.com", "engine"}, c.Names(), name)
		}
		for range 2 {
			require.ErrorContains(t, c.Verify(second.Pool(), now), "not accepted any more", name)
		}
		require.NoError(t, c.Verify(nil, now), name)
		require.Equal(t, Certificates{}, c, name)
	}
	c := CertificatesOf(state, first.Pool())
	require.ErrorContains(t, c.Verify(both, leaf.NotAfter.Add(time.Second)), "expired")

	unverified := CertificatesOf(&tls.ConnectionState{PeerCertificates: state.PeerCertificates}, nil)
	require.NoError(t, unverified.Verify(nil, now))
	require.Nil(t, unverified.Names())
	require.ErrorContains(t, unverified.Verify(first.Pool(), now), "requires a certificate")
	plain := CertificatesOf(nil, nil)
	require.NoError(t, plain.Verify(nil, now))
}
