package redis

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// How many keys fit follows from those there once half of the memory is used.
func TestMaxKeys(t *testing.T) {
	for name, of := range map[string]struct {
		info  string
		want  int64
		known bool
	}{
		"two thirds": {"# Memory\r\nused_memory:2000\r\nmaxmemory:3000\r\n", 1500, true},
		"a quarter":  {"used_memory:1000\r\nmaxmemory:4000\r\n", 0, false},
		"no bound":   {"used_memory:1000\r\nmaxmemory:0\r\n", 0, false},
		"nothing":    {"", 0, false},
	} {
		most, known := maxKeys(of.info, 1000)
		assert.Equal(t, of.want, most, name)
		assert.Equal(t, of.known, known, name)
	}
}
