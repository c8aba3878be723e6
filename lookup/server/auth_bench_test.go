package server

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup/access"
	"github.com/hitline/hitline/netproto"
)

// BenchmarkWrongTokens measures whether the time that a failed auth request takes over TCP tells
// how much of the token is right: see lookuptest.CompareTimes. access has the same for the search
// alone.
func BenchmarkWrongTokens(b *testing.B) {
	const name = "engines of the third cluster"
	credentials := []access.Credential{tokenOf(name, access.All)}
	for i := range 99 {
		credentials = append(credentials, tokenOf(fmt.Sprint(i), access.All))
	}
	server := startWith(b, nil, settingsOf(b, access.Ping, credentials...))
	right := string(authFrames(name)[1])
	p := lookuptest.DialPeer(b, server.Addrs()[0])
	require.NoError(b, p.SetDeadline(time.Time{}))
	reply := make([]byte, 512)
	var calls []lookuptest.TimedCall
	for _, shared := range []int{0, len(right) / 2, len(right) - 1} {
		token := right[:shared] + strings.Repeat("-", len(right)-shared)
		request := netproto.AppendRequest(nil, nil, netproto.TagAuth, []byte(token))
		p.Send(b, request)
		size := len(lookuptest.Encode(p.Next(b)...)) // each gets the same
		calls = append(calls, lookuptest.TimedCall{
			Name: fmt.Sprintf("%d of %d bytes right", shared, len(right)),
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
