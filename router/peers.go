package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hitline/hitline/internal/fielderror"
)

// maxErrorBody bounds, in bytes, what is read of the reply of a peer that refuses.
const maxErrorBody = 4 << 10

// peerClient has no proxy: peers are near. It follows no redirect, as the token would go with it.
var peerClient = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// CheckPeer returns an error for what cannot be one of StartConfig.Peers. It does not repeat the text, which may have a
// password.
func CheckPeer(peer string) error {
	u, err := url.Parse(peer)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("not the address of a peer; write http://host:port or https://host:port")
	}
	return nil
}

// loadFromPeers loads the dump of the first peer that has one. It fails with fielderror.ErrConfig or the error of ctx.
func (s *Service) loadFromPeers(ctx context.Context, cfg *StartConfig) error {
	for i, peer := range cfg.Peers {
		if err := CheckPeer(peer); err != nil {
			return fmt.Errorf("%w: peer %d: %w", fielderror.ErrConfig, i+1, err)
		}
	}
	for _, peer := range cfg.Peers {
		start := time.Now()
		err := s.loadFrom(ctx, peer, cfg)
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

// loadFrom loads the dump of a peer within PeerTimeout.
func (s *Service) loadFrom(ctx context.Context, peer string, cfg *StartConfig) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.PeerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(peer, "/")+"/dump", nil)
	if err != nil {
		return err
	}
	if cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cfg.Token)
	}
	resp, err := peerClient.Do(req)
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
	var reply struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(body, &reply) != nil || reply.Error.Message == "" {
		return fmt.Errorf("the peer answers %q", resp.Status)
	}
	return fmt.Errorf("the peer answers %q: %s", resp.Status, reply.Error.Message)
}
