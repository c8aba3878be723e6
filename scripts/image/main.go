// Image builds hitline's container image without a daemon, as a layout of the OCI for amd64 and arm64.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: image [LAYOUT]

Compiles hitline and writes the image for amd64 and arm64 as an OCI layout, into
dist/image unless it is given. The same commit gives the same bytes.
`

// source is the source tree, seen from the folder of this program: go -C scripts/image run .
const source = "../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	output := filepath.Join(source, "dist", "image")
	switch args := os.Args[1:]; {
	case len(args) == 1 && (args[0] == "-h" || args[0] == "--help"):
		fmt.Print(usage)
		return
	case len(args) > 1 || len(args) == 1 && strings.HasPrefix(args[0], "-"):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	case len(args) == 1:
		output = args[0]
	}
	if err := build(ctx, source, output, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}
