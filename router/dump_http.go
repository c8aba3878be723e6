package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hitline/hitline/internal/fielderror"
)

const (
	dumpPath        = "/dump"
	dumpContentType = "application/octet-stream"
	// dumpWriteTimeout is how long a reader of a dump may take none of it, and maxDumpTime how long it may take in all:
	// a copy of the fleets is in memory until then.
	dumpWriteTimeout = 30 * time.Second
	maxDumpTime      = 10 * time.Minute
	// busyPause is how long a peer waits before it asks again because another one is getting a dump.
	busyPause = 500 * time.Millisecond
	// maxErrorBody bounds, in bytes, what is read of the reply of a peer that refuses.
	maxErrorBody = 4 << 10
	// maxPeerHeader bounds the header of a reply, in bytes.
	maxPeerHeader = 64 << 10
)

// Codes of the errors of DumpHandler.
const (
	codeBusy    = "busy"
	codeLoading = "not_ready"
)

// DumpHandler returns a handler of GET /dump, which writes a dump. It answers status 503 while another dump is written,
// or while the service loads one, with {"error": {"code": "busy" or "not_ready", "message": "…"}}. Who may have a dump is
// for the caller to decide: it names the engines and all their blocks.
func (s *Service) DumpHandler() http.Handler { return http.HandlerFunc(s.serveDump) }

func (s *Service) serveDump(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		dumpError(w, http.StatusMethodNotAllowed, "method_not_allowed", errors.New("router: a dump is read with GET"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxDumpTime)
	defer cancel()
	out := &dumpResponse{ctx: ctx, w: w, control: http.NewResponseController(w)}
	err := s.WriteDump(ctx, out)
	if err == nil {
		return
	}
	if !out.begun {
		w.Header().Set("Retry-After", "1")
		code := codeBusy
		if errors.Is(err, ErrLoading) {
			code = codeLoading
		}
		dumpError(w, http.StatusServiceUnavailable, code, err)
		return
	}
	s.log.Warn("router: a dump was not written to its end", "to", r.RemoteAddr, "reason", err)
}

// dumpResponse writes the body of a reply, with a deadline for each piece.
type dumpResponse struct {
	ctx     context.Context
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// Write implements io.Writer.
func (d *dumpResponse) Write(b []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", dumpContentType)
	}
	_ = d.control.SetWriteDeadline(time.Now().Add(dumpWriteTimeout)) // fails if w has none, as in tests
	return d.w.Write(b)
}

// errorReply is the body of a reply that refuses.
type errorReply struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func dumpError(w http.ResponseWriter, status int, code string, err error) {
	var reply errorReply
	reply.Error.Code, reply.Error.Message = code, err.Error()
	body, _ := json.Marshal(reply)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// errPeerBusy is the error of a peer that is writing a dump for another one.
var errPeerBusy = errors.New("router: the peer is busy")

// newPeerClient returns a client for dumps, without a proxy: peers are near. Redirects are not followed, as the token
// would go with them.
func newPeerClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxPeerHeader},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dumpURL returns the address of a peer's dump.
func dumpURL(peer string) (string, error) {
	u, err := url.Parse(peer)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("router: %w: the peer %q must be http://HOST:PORT or https://HOST:PORT", fielderror.ErrConfig, peer)
	}
	return u.JoinPath(dumpPath).String(), nil
}

// checkPeer returns fielderror.ErrConfig for what cannot be a peer of StartConfig.
func checkPeer(peer string) error {
	_, err := dumpURL(peer)
	return err
}

// loadFromPeers loads the dump of the first peer that has one. It fails with fielderror.ErrConfig or the error of ctx.
func (s *Service) loadFromPeers(ctx context.Context, cfg *StartConfig) error {
	for _, peer := range cfg.Peers {
		if err := checkPeer(peer); err != nil {
			return err
		}
	}
	client := cfg.Client
	if client == nil {
		client = newPeerClient()
	}
	for _, peer := range cfg.Peers {
		start := time.Now()
		err := s.loadFrom(ctx, client, peer, cfg)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			s.log.Info("router: loaded what a peer holds", "peer", peer, "took", time.Since(start).Round(time.Millisecond))
			return nil
		}
		s.log.Warn("router: a peer has no dump for us", "peer", peer, "reason", err)
	}
	return nil
}

// loadFrom loads the dump of a peer within PeerTimeout. It waits while the peer is busy.
func (s *Service) loadFrom(ctx context.Context, client *http.Client, peer string, cfg *StartConfig) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.PeerTimeout)
	defer cancel()
	for {
		err := s.fetch(ctx, client, peer, cfg.Token)
		if !errors.Is(err, errPeerBusy) {
			return err
		}
		timer := time.NewTimer(busyPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// fetch asks a peer once.
func (s *Service) fetch(ctx context.Context, client *http.Client, peer, token string) error {
	address, err := dumpURL(peer)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return peerError(resp)
	}
	return s.LoadDump(resp.Body)
}

// peerError returns the error of a reply that refuses.
func peerError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var reply errorReply
	if json.Unmarshal(body, &reply) != nil || reply.Error.Message == "" {
		return fmt.Errorf("router: the peer answers %q", resp.Status)
	}
	err := fmt.Errorf("router: the peer answers %q: %s", resp.Status, reply.Error.Message)
	if resp.StatusCode == http.StatusServiceUnavailable && reply.Error.Code == codeBusy {
		return fmt.Errorf("%w: %w", errPeerBusy, err)
	}
	return err
}
