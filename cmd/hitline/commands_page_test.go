package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hitline/hitline/lookup/server"
)

// docs/commands.md has each command, and each reason for which connections are closed.
func TestCommandsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/commands.md")
	require.NoError(t, err)
	// The first cells of the tables, and of keys with a dot the last part.
	named := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`(?:closed)?(\\.?[a-z_-]+)`").FindAllStringSubmatch(row[1], -1) {
			named[name[1]] = true
		}
	}
	for _, command := range newRootCmd().Commands() {
		if name := command.Name(); name != "help" {
			assert.True(t, named[name], "the page has no row for the command %s", name)
			delete(named, name)
		}
	}
	for _, reason := range server.CloseReasons() {
		assert.True(t, named["."+reason], "the page has no row for closed.%s", reason)
		delete(named, "."+reason)
	}
	for name := range named {
		assert.NotEqual(t, '.', rune(name[0]), "the page has closed%s, which is no reason", name)
	}
}
