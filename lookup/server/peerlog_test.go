package server

import (
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/internal/loglimit"
	"github.com/hitline/hitline/internal/lookuptest"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/netproto"
)

func TestPeerLogIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := lookuptest.NewLog(slog.LevelInfo)
		l := newPeerLog(logger)
		peer := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}
		cause := netproto.ErrFirstByte
		first := `level=WARN msg="connection closed" reason=bad_first_byte peer=10.0.0.1:5 error="first byte begins no known dialect"`

		for range 100 {
			l.connectionClosed(closedFirstByte, peer, cause)
		}
		l.connectionClosed(closedMaxConnections, nil, nil) // each reason for itself
		require.Equal(t, []string{first, `level=WARN msg="connection closed" reason=max_connections`}, log.Take())

		time.Sleep(loglimit.Interval - 1)
		l.connectionClosed(closedFirstByte, peer, cause)
		require.Empty(t, log.Take())

		time.Sleep(time.Nanosecond)
		l.connectionClosed(closedFirstByte, peer, cause)
		require.Equal(t, []string{first + " suppressed=100"}, log.Take())

		for range 3 {
			l.requestRefused(peer, lookup.ErrGroupRank)
		}
		require.Equal(t, []string{`level=WARN msg="request refused" peer=10.0.0.1:5 error="group or rank is outside the configured pool"`}, log.Take())
	})
}

func TestPeerLogLevels(t *testing.T) {
	log, logger := lookuptest.NewLog(slog.LevelDebug)
	l := newPeerLog(logger)
	for why := closedByPeer; why < numReasons; why++ {
		l.connectionClosed(why, nil, nil)
		level := "WARN"
		switch why {
		case closedByPeer:
			require.Empty(t, log.Take())
			continue
		case closedIdleTimeout, closedDraining:
			level = "DEBUG"
		case closedHeartbeatTimeout, closedRevoked, closedExpired, closedPoolGone:
			level = "INFO"
		}
		require.Equal(t, []string{"level=" + level + ` msg="connection closed" reason=` + why.String()}, log.Take())
		l.connectionClosed(why, nil, nil) // whoever debugs sees each
		require.Equal(t, []string{`level=DEBUG msg="connection closed" reason=` + why.String()}, log.Take())
	}
}
