package wire

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// turn is a step of the server's side of a handshake: what the client must send, and the answer.
type turn struct{ sent, answer string }

// A token goes by the PLAIN mechanism, also one so long that its command is a long frame.
func TestHandshakeByPLAIN(t *testing.T) {
	const metadata = "\x0bSocket-Type\x00\x00\x00\x03REQ\x08Identity\x00\x00\x00\x00"
	greeted := "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01PLAIN" + strings.Repeat("\x00", 47)
	theirs := strings.Replace(greeted, "PLAIN\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "PLAIN\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", 1) // as server
	long := strings.Repeat("x", 255)
	hello := turn{"\x04\x0e\x05HELLO\x00\x06secret", "\x04\x08\x07WELCOME"}
	initiate := turn{"\x04\x29\x08INITIATE" + metadata, "\x04\x06\x05READY"}
	for name, tt := range map[string]struct {
		token string
		turns []turn
		text  string
	}{
		"right":     {"secret", []turn{{greeted, theirs}, hello, initiate}, ""},
		"long":      {long, []turn{{greeted, theirs}, {"\x06\x00\x00\x00\x00\x00\x00\x01\x07\x05HELLO\x00\xff" + long, hello.answer}, initiate}, ""},
		"wrong":     {"secret", []turn{{greeted, theirs}, {hello.sent, "\x04\x0a\x05ERROR\x03400"}}, `no WELCOME, but "\x05ERROR\x03400"`},
		"no tokens": {"secret", []turn{{greeted, strings.Replace(greeted, "PLAIN", "NULL\x00", 1)}}, "no ZMTP greeting under the PLAIN mechanism"},
		"closed":    {"secret", []turn{{greeted, theirs}, {hello.sent, ""}}, "closed by the server"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, peer := net.Pipe()
			defer ours.Close()
			done := make(chan string, 1)
			go func() {
				defer peer.Close()
				sent := ""
				for _, turn := range tt.turns {
					part := make([]byte, len(turn.sent))
					_, _ = io.ReadFull(peer, part)
					sent += string(part)
					_, _ = io.WriteString(peer, turn.answer)
				}
				done <- sent
			}()
			err := handshake(ours, false, tt.token)
			want := ""
			for _, turn := range tt.turns {
				want += turn.sent
			}
			require.Equal(t, want, <-done)
			if tt.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}
