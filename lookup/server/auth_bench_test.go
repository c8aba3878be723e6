package server

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/internal/lookuptest"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkWrongTokens measures whether the time that a failed auth request takes over TCP tells
// how much of the token is right: see lookuptest.CompareTimes. access has the same for the search
// alone.
func BenchmarkWrongTokens(b *testing.B) {
	server := startWithToken(b, slog.New(slog.DiscardHandler))
	tokens := []string{engineToken}
	for i := range 99 {
		tokens = append(tokens, fmt.Sprint("another token ", i))
	}
	require.NoError(b, server.SetListener(server.Addrs()[0], Settings{Rules: engineRules(b, tokens...)}))
	p := lookuptest.DialPeer(b, server.Addrs()[0])
	require.NoError(b, p.SetDeadline(time.Time{}))
	reply := make([]byte, 512)
	var calls []lookuptest.TimedCall
	for _, shared := range []int{0, len(engineToken) / 2, len(engineToken) - 1} {
		token := engineToken[:shared] + strings.Repeat("-", len(engineToken)-shared)
		request := netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(token))
		p.Send(b, request)
		size := len(lookuptest.Encode(p.Next(b)...)) // each gets the same
		calls = append(calls, lookuptest.TimedCall{
			Name: fmt.Sprintf("%d of %d bytes right", shared, len(engineToken)),
			Call: func() {
				_, err := p.Write(request)
				if err == nil {
					_, err = io.ReadFull(p, reply[:size])
				}
				if err != nil || reply[2] != netproto.StatusFailed {
					b.Fatal(err, reply[:size])
				}
			},
		})
	}
	lookuptest.CompareTimes(b, calls)
}
