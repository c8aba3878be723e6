package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// WithTLS sets the configuration of TLS for tls:// addresses. TLS 1.3 is the least version
// whatever cfg says, and the name in the server's certificate is that of the address unless
// cfg.ServerName is set. cfg is copied; nil is as an empty one, which is the default: the roots
// of the system and no client certificate.
//
// A server that refuses the client's certificate says so after the handshake: Dial fails with
// ErrConnect.
func WithTLS(cfg *tls.Config) Option {
	cfg = cfg.Clone() // nil for nil
	return func(c *config) { c.tls = cfg }
}

// dialFunc is the function of WithDialer.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// overTLS returns the function that makes TLS connections over those of dial.
func (dial dialFunc) overTLS(cfg *tls.Config) dialFunc {
	if cfg == nil {
		cfg = new(tls.Config)
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		cfg := cfg.Clone()
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS13)
		cfg.DynamicRecordSizingDisabled = true // small records cost writes, and a server needs all of a request
		if cfg.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			cfg.ServerName = host
		}
		nc, err := dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		secured := tls.Client(nc, cfg)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, handshakeError(err)
		}
		return secured, nil
	}
}

// handshakeError says what a server without TLS looks like: hitline's closes the connection.
func handshakeError(err error) error {
	err = withoutSource(err)
	var record tls.RecordHeaderError
	if errors.Is(err, io.EOF) || errors.As(err, &record) {
		return fmt.Errorf("TLS handshake: %w: has this address TLS?", err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// socketOf returns the connection below TLS, or nc itself.
func socketOf(nc net.Conn) net.Conn {
	if over, ok := nc.(*tls.Conn); ok {
		return over.NetConn()
	}
	return nc
}

// closeConn closes a connection at once. The Close of a TLS connection would first write, for up
// to 5 seconds if the server does not read.
func closeConn(nc net.Conn) { _ = socketOf(nc).Close() }
