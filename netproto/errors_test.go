package netproto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A peer that speaks HTTP is named, whether it asks or answers.
func TestHTTPIsNamed(t *testing.T) {
	const named = "the peer speaks HTTP"
	_, _, err := ParseMessage([]byte("HTTP/1.1 400 Bad Request\r\n"), Limits{}, nil)
	require.ErrorContains(t, err, named)
	require.ErrorContains(t, &FrameError{Err: ErrFirstByte, Byte: 'G'}, named)
	require.NotContains(t, (&FrameError{Err: ErrFirstByte, Byte: 0x16}).Error(), named)
	require.NotContains(t, (&FrameError{Err: ErrFlags, Frame: 1, Byte: 'H', Len: 'T'}).Error(), named)
}
