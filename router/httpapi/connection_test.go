package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/certtest"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/router"
)

// tlsAPI is a handler behind TLS, whose clients need a certificate of authorities, with a client.
type tlsAPI struct {
	authorities *x509.CertPool
	rules       *access.Rules
	client      *http.Client
	dials       int
}

// startTLSAPI serves until the bubble ends. One certificate is that of server and client, whose client may do
// everything.
func startTLSAPI(t *testing.T, ca *certtest.CA, certificate tls.Certificate) *tlsAPI {
	a := &tlsAPI{authorities: ca.Pool()}
	var err error
	a.rules, err = access.NewRules(access.Ping, []access.Credential{{Name: "c", Certificate: "localhost", Permissions: access.All}})
	require.NoError(t, err)
	conns := make(lookuptest.Pipes)
	server := &http.Server{ConnContext: ConnContext, Handler: New(Config{
		Service: newService(t, router.Config{}), Authorize: ByRules(func() (*access.Rules, *x509.CertPool) { return a.rules, a.authorities }),
	})}
	go func() {
		_ = server.Serve(tls.NewListener(conns, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			own := []tls.Certificate{ca.Leaf("localhost")}
			return &tls.Config{Certificates: own, ClientCAs: a.authorities, ClientAuth: tls.RequireAndVerifyClientCert}, nil
		}}))
	}()
	a.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{certificate}},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			conns <- far
			a.dials++
			return near, nil
		},
	}}
	t.Cleanup(func() {
		a.client.CloseIdleConnections()
		// Both ends say that they close, and nobody reads it: crypto/tls waits for some seconds. Close waits with a
		// lock held, for which the bubble's clock stops, so the connections end before it.
		time.Sleep(time.Minute)
		_ = server.Close()
	})
	return a
}

// get returns the status of a reply, and whether the connection ends with it.
func (a *tlsAPI) get(t *testing.T, path string) (status int, ends bool) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost"+path, nil)
	require.NoError(t, err)
	reply, err := a.client.Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, reply.Body) // or the connection is not used again
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	return reply.StatusCode, reply.Close
}

// A connection ends with the certificate of its client, whatever is asked: when it expires, and when none of the
// authorities that there are now accepts it.
func TestCertificateOfConnection(t *testing.T) {
	for name, change := range map[string]func(*tlsAPI){
		"expired":           func(*tlsAPI) { time.Sleep(time.Hour) },
		"another authority": func(a *tlsAPI) { a.authorities = certtest.NewCA("other").Pool() },
	} {
		for _, path := range []string{"/services", "/health", "/none"} {
			synctest.Test(t, func(t *testing.T) {
				ca := certtest.NewCA("ca")
				a := startTLSAPI(t, ca, ca.LeafUntil(time.Now().Add(time.Hour), "localhost"))
				for range 2 {
					status, ends := a.get(t, "/services")
					require.Equal(t, http.StatusOK, status)
					require.False(t, ends)
				}
				change(a)
				status, ends := a.get(t, path)
				require.Equal(t, http.StatusUnauthorized, status, "%s: %s", name, path)
				require.True(t, ends, "%s: %s", name, path)
				require.Equal(t, 1, a.dials)
			})
		}
	}
}

// Without authorities the certificate of a connection means nothing.
func TestCertificateWithoutAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.NewCA("ca")
		a := startTLSAPI(t, ca, ca.Leaf("localhost"))
		status, _ := a.get(t, "/services")
		require.Equal(t, http.StatusOK, status)
		a.authorities = nil
		for path, want := range map[string]int{"/services": http.StatusUnauthorized, "/health": http.StatusOK} {
			status, ends := a.get(t, path)
			require.Equal(t, want, status, path)
			require.False(t, ends)
		}
		require.Equal(t, 1, a.dials)
	})
}
