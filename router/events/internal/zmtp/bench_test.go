package zmtp

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReceive receives messages of three frames over loopback.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{100, 5 << 10, 100 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			defer l.Close()
			message := appendFrame(nil, nil, true)
			message = appendFrame(message, make([]byte, 8), true)
			message = appendFrame(message, make([]byte, size), false)
			// As libzmq does, several messages go with one system call.
			per := max(1, 64<<10/len(message))
			var many []byte
			for range per {
				many = append(many, message...)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, err = conn.Write(peerSays("PUB"))
				for err == nil {
					_, err = conn.Write(many)
				}
			}()
			c, err := Dial(context.Background(), "tcp", l.Addr().String(), sub)
			require.NoError(b, err)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				frames, err := c.Receive()
				if err != nil || len(frames[2]) != size {
					b.Fatal(err)
				}
			}
			_ = c.Close()
			<-done
		})
	}
}
