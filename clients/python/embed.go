// Package python holds the Python client, for programs that start it.
package python

import "embed"

// Client is the package hitline, without its tests.
//
//go:embed hitline/*.py
var Client embed.FS
