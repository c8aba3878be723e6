package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
)

func TestPeerLogIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := lookuptest.NewLog(slog.LevelInfo)
		l := newPeerLog(logger)
		peer := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
		cause := errors.New("byte 47")
		first := `level=WARN msg="connection closed" reason=bad_first_byte peer=10.0.0.1:5 error="byte 47"`
		more := func(n int) string {
			return fmt.Sprintf(`level=WARN msg="more connections closed" reason=bad_first_byte suppressed=%d`, n)
		}

		for range 100 {
			l.connectionClosed(closedFirstByte, peer, cause)
		}
		l.connectionClosed(closedMaxConnections, nil, nil) // each reason for itself
		require.Equal(t, []string{first, `level=WARN msg="connection closed" reason=max_connections`}, log.Take())

		time.Sleep(loglimit.Interval - 1)
		l.flush(false)
		l.connectionClosed(closedFirstByte, peer, cause)
		require.Empty(t, log.Take())

		time.Sleep(time.Nanosecond)
		l.connectionClosed(closedFirstByte, peer, cause)
		require.Equal(t, []string{first + " suppressed=100"}, log.Take())

		// With no further line, the number is told when the next line could be.
		l.connectionClosed(closedFirstByte, peer, cause)
		l.connectionClosed(closedFirstByte, peer, cause)
		time.Sleep(loglimit.Interval)
		l.flush(false)
		l.flush(false)
		require.Equal(t, []string{more(2)}, log.Take())
		l.connectionClosed(closedFirstByte, peer, cause) // that was a line
		require.Empty(t, log.Take())

		for range 3 {
			l.requestFailed(peer, lookup.ErrGroupRank)
		}
		require.Equal(t, []string{`level=WARN msg="request refused" peer=10.0.0.1:5 error="group or rank is outside the configured pool"`}, log.Take())

		l.flush(true) // the end waits for nothing
		l.flush(true)
		require.Equal(t, []string{more(1), `level=WARN msg="more requests refused" suppressed=2`}, log.Take())
	})
}

func TestPeerLogLevels(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelDebug)
	l := newPeerLog(logger)
	for why := range numReasons {
		l.connectionClosed(why, nil, nil)
		level := "WARN"
		switch why {
		case closedByPeer:
			require.Empty(t, log.Take())
			continue
		case closedIdleTimeout, closedDraining:
			level = "DEBUG"
		case closedHeartbeatTimeout, closedRevoked, closedExpired:
			level = "INFO"
		}
		require.Equal(t, []string{"level=" + level + ` msg="connection closed" reason=` + why.String()}, log.Take())
		l.connectionClosed(why, nil, nil) // whoever debugs sees each
		require.Equal(t, []string{`level=DEBUG msg="connection closed" reason=` + why.String()}, log.Take())
	}
}

// A scanner is told of once, with its address and what was wrong, and the rest as a
// number.
func TestServerTellsOfPeers(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelInfo)
	service, err := lookup.NewService(blocks16)
	require.NoError(t, err)
	server, err := New(service, Config{Listeners: []Listener{{Address: "tcp://127.0.0.1:0"}}, Logger: logger})
	require.NoError(t, err)
	require.NoError(t, server.Start(context.Background()))
	var first string
	for i := range 5 {
		p := lookuptest.DialPeer(t, server.Addrs()[0])
		p.Send(t, []byte("GET / HTTP/1.1\r\n\r\n"))
		p.ClosedWithin(t)
		lookuptest.Eventually(t, "counted", func() bool { return server.closed[closedFirstByte].Load() == int64(i+1) })
		if i == 0 {
			first = p.LocalAddr().String()
		}
	}
	p := lookuptest.DialPeer(t, server.Addrs()[0])
	for range 3 {
		require.Equal(t, []byte{0}, p.Ask(t, []byte("nonsense"))[0])
	}
	require.NoError(t, server.Shutdown(context.Background()))
	lines := log.Take()
	require.Contains(t, lines[0], `level=WARN msg="connection closed" reason=bad_first_byte peer=`+first+` error="`)
	require.Contains(t, strings.Join(lines, "\n"), `level=WARN msg="request refused" peer=`+p.LocalAddr().String()+` error="`)
	told := len(lines)
	for _, line := range lines { // one line of each, and one for the rest, unless a second has passed meanwhile
		if _, n, ok := strings.Cut(line, "suppressed="); ok {
			suppressed, err := strconv.Atoi(strings.Fields(n)[0])
			require.NoError(t, err)
			if told += suppressed; strings.Contains(line, "more ") {
				told--
			}
		}
	}
	require.Equal(t, 5+3, told, lines)
}
