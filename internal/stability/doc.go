// Package stability has the tests of what docs/stability.md promises: which packages are stable, how
// scripts/check-api compares them with the last release, and that `go install` of a tag gives that version.
package stability
