// Package python holds the Python client, for programs that start it. No promise: it is internal to
// this module, and its API may change in any release.
package python

import "embed"

// Client is the package hitline, without its tests.
//
//go:embed hitline/*.py
var Client embed.FS
