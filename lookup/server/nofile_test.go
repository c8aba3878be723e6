package server

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescriptorsOf(t *testing.T) {
	require.EqualValues(t, 1, descriptorsOf([]Listener{{Address: "tcp://[::1]:0"}}))
	require.EqualValues(t, 3, descriptorsOf([]Listener{{Address: "tcp://[::1]:0"}, {Settings: Settings{TLS: &tls.Config{}}}}))
}
