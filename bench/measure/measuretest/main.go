package measuretest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and looks for goroutines that they leave. If a variable
// is named and set, this binary is a program that tests have started instead: serve gets the
// variable's value and returns the exit code.
func Main(m *testing.M, variable string, serve func(value string) int) {
	if value := os.Getenv(variable); value != "" {
		os.Exit(serve(value))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // gnet's init starts some
}
