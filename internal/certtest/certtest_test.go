package certtest_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
)

func TestLeafVerifies(t *testing.T) {
	ca, other := certtest.NewCA("one"), certtest.NewCA("other")
	leaf := ca.Leaf("localhost", "127.0.0.1", "spiffe://example.com/engine", "engine@example.com", "CN=engine").Leaf
	require.Equal(t, "engine", leaf.Subject.CommonName)
	require.Equal(t, []string{"engine@example.com"}, leaf.EmailAddresses)
	require.Equal(t, "spiffe://example.com/engine", leaf.URIs[0].String())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: host})
		require.NoError(t, err)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: "example.com"})
	require.Error(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: other.Pool()})
	require.Error(t, err)
}

func TestLeafUntilThePastHasExpired(t *testing.T) {
	ca := certtest.NewCA("ca")
	leaf := ca.LeafUntil(time.Now().Add(-time.Minute), "localhost").Leaf
	_, err := leaf.Verify(x509.VerifyOptions{Roots: ca.Pool()})
	var invalid x509.CertificateInvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, x509.Expired, invalid.Reason)
}

func TestFilesCanBeLoaded(t *testing.T) {
	ca, dir := certtest.NewCA("ca"), t.TempDir()
	leaf := ca.Leaf("localhost")
	cert, key := certtest.WriteFiles(dir, "server", leaf)
	loaded, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	require.Equal(t, leaf.Certificate, loaded.Certificate)
}
