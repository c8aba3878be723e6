package zmtp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEndpoints(t *testing.T) {
	longest := "/" + strings.Repeat("x", 106)
	cases := []struct{ endpoint, dial, listen string }{
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
		{"ipc://" + longest, "unix " + longest, "unix " + longest},
	}
	for _, bad := range []string{
		"", "127.0.0.1:5557", "tls://host:5557", "inproc://events", "ipc://", "ipc://@", "ipc://*", "ipc:///a\x00b", "ipc://" + longest + "x", "tcp://",
		"tcp://:5557", "tcp://::1:5557", "tcp://host", "tcp://host:", "tcp://host:65536", "tcp://host:-1", "tcp://host:http", "tcp://eth0;10.0.0.1:5557",
	} {
		cases = append(cases, struct{ endpoint, dial, listen string }{endpoint: bad})
	}
	for _, c := range cases {
		for want, parse := range map[*string]func(string) (string, string, error){&c.dial: DialAddress, &c.listen: ListenAddress} {
			network, address, err := parse(c.endpoint)
			if *want == "" {
				require.ErrorIs(t, err, ErrEndpoint, c.endpoint)
				require.Contains(t, err.Error(), strconv.Quote(c.endpoint))
				continue
			}
			require.NoError(t, err, c.endpoint)
			require.Equal(t, *want, network+" "+address)
		}
	}
}
