package config

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The status page is for this machine alone unless the configuration asks for more.
func TestStatusPage(t *testing.T) {
	for _, test := range []struct {
		text          string
		serves, local bool
	}{
		{"{}\n", false, false},
		{"status_page: false\n", false, false},
		{"metrics: 127.0.0.1:9557\n", true, true},
		{"metrics: localhost:9557\n", true, true},
		{"metrics: \"[::1]:9557\"\n", true, true},
		{"metrics: 127.0.0.1:9557\nstatus_page: false\n", false, true},
		{"metrics: 0.0.0.0:9557\n", false, false},
		{"metrics: \"[::]:9557\"\n", false, false},
		{"metrics: 10.0.0.1:9557\n", false, false},
		{"metrics: localhost.example:9557\n", false, false},
		{"metrics: 0.0.0.0:9557\nstatus_page: true\n", true, false},
	} {
		c := load(t, test.text)
		assert.Equal(t, test.serves, c.ServesStatusPage(), test.text)
		assert.Equal(t, test.local, c.MetricsIsLocal(), test.text)
		text, err := c.YAML()
		assert.NoError(t, err)
		assert.Contains(t, string(text), fmt.Sprintf("\nstatus_page: %v\n", test.serves), "what is in effect")
		again := load(t, string(text))
		assert.Equal(t, test.serves, again.ServesStatusPage(), string(text))
	}
}
