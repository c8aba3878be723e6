package zmtp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEndpoints(t *testing.T) {
	for _, c := range []struct{ endpoint, dial, listen string }{
		{"tcp://127.0.0.1:5557", "tcp 127.0.0.1:5557", "tcp 127.0.0.1:5557"},
		{"tcp://engine-0.example:65535", "tcp engine-0.example:65535", "tcp engine-0.example:65535"},
		{"tcp://[::1]:5557", "tcp [::1]:5557", "tcp [::1]:5557"},
		{"tcp://[::]:5557", "tcp [::]:5557", "tcp [::]:5557"},
		{"tcp://*:5557", "", "tcp :5557"},
		{"tcp://127.0.0.1:*", "", "tcp 127.0.0.1:0"},
		{"tcp://127.0.0.1:0", "", "tcp 127.0.0.1:0"},
		{"ipc:///run/events", "unix /run/events", "unix /run/events"},
		{"ipc://events", "unix events", "unix events"},
		{"ipc://@events", "unix @events", "unix @events"},
		{"ipc:///" + strings.Repeat("x", 106), "unix /" + strings.Repeat("x", 106), "unix /" + strings.Repeat("x", 106)},
		{"ipc:///" + strings.Repeat("x", 107), "", ""},
		{"ipc://", "", ""},
		{"ipc://@", "", ""},
		{"ipc://*", "", ""},
		{"ipc:///a\x00b", "", ""},
		{"tcp://:5557", "", ""},
		{"tcp://::1:5557", "", ""},
		{"tcp://host", "", ""},
		{"tcp://host:", "", ""},
		{"tcp://host:65536", "", ""},
		{"tcp://host:-1", "", ""},
		{"tcp://host:http", "", ""},
		{"tcp://eth0;10.0.0.1:5557", "", ""},
		{"tcp://", "", ""},
		{"tls://host:5557", "", ""},
		{"inproc://events", "", ""},
		{"127.0.0.1:5557", "", ""},
		{"", "", ""},
	} {
		for _, side := range []struct {
			parse func(string) (string, string, error)
			want  string
		}{{DialAddress, c.dial}, {ListenAddress, c.listen}} {
			network, address, err := side.parse(c.endpoint)
			if side.want == "" {
				require.ErrorIs(t, err, ErrEndpoint, c.endpoint)
				require.Contains(t, err.Error(), strconv.Quote(c.endpoint))
				continue
			}
			require.NoError(t, err, c.endpoint)
			require.Equal(t, side.want, network+" "+address)
		}
	}
}
