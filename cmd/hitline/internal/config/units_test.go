package config

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "64MiB": 64 << 20, "1KiB": 1024, "1KB": 1000, "3GiB": 3 << 30, "2MB": 2e6, "5GB": 5e9, "7TiB": 7 << 40,
		"9223372036854775807": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		var s Size
		require.NoError(t, s.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, s, text)
		var again Size
		require.NoError(t, again.UnmarshalText([]byte(s.String())), s.String())
		assert.Equal(t, s, again, text)
	}
	for _, text := range []string{"", " ", "1 GiB", "GiB", "1.5GiB", "1G", "1TB", "1gib", "1B", "0x10", "010", "-1", "+1", "1KiBKiB", "1e3", "9223372036854775808", "8388608TiB"} {
		s := Size(7)
		assert.Error(t, s.UnmarshalText([]byte(text)), text)
		assert.Equal(t, Size(7), s, "unchanged by %q", text)
	}
}

func TestMode(t *testing.T) {
	for text, want := range map[string]Mode{"0600": 0o600, "600": 0o600, "0660": 0o660, "0666": 0o666, "0622": 0o622, "00644": 0o644} {
		var m Mode
		require.NoError(t, m.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, m, text)
		back, err := m.MarshalText()
		require.NoError(t, err)
		var again Mode
		require.NoError(t, again.UnmarshalText(back), "%s", back)
		assert.Equal(t, m, again, "%s", back)
	}
	for _, text := range []string{"", "0", "0060", "0400", "0700", "0601", "1600", "0688", "0o600", "rw", "-600", "+600", "0x180", " 600"} {
		assert.Error(t, new(Mode).UnmarshalText([]byte(text)), text)
	}
}

func TestSizeText(t *testing.T) {
	for size, want := range map[Size]string{0: "0", 1: "1", 1000: "1000", 1024: "1KiB", 1536: "1536", 1 << 20: "1MiB", 3 << 30: "3GiB", 1 << 50: "1024TiB"} {
		text, err := yaml.MarshalWithOptions(size, yaml.CustomMarshaler(quoted))
		require.NoError(t, err)
		assert.Equal(t, want, strings.Trim(string(text), "\"\n"))
	}
}

// A number that a field cannot hold is refused, not cut to its bits.
func TestIntOverflow(t *testing.T) {
	var small int8
	require.NoError(t, scalar{text: "-128"}.set(reflect.ValueOf(&small).Elem()))
	assert.EqualError(t, scalar{text: "128"}.set(reflect.ValueOf(&small).Elem()), "128 is out of range")
	assert.Equal(t, int8(-128), small)
}
