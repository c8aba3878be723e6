// Image builds hitline's container image without a daemon, as a layout of the OCI for amd64 and
// arm64, and pushes it to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

const usage = `usage: image build [--output LAYOUT]
       image push [--repository NAME] LAYOUT

build compiles hitline and writes the image for amd64 and arm64 as an OCI
layout. The same commit gives the same bytes.

push sends the image of a release to a registry, with the tags VERSION and, if
no greater release has them, MAJOR.MINOR and latest. It prints the digest. It
takes the account from ~/.docker/config.json (docker login).
`

// source is the source tree, seen from the folder of this program: go -C scripts/image run .
const source = "../.."

// errUsage is returned for a wrong command line, which has been explained already.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run runs the command that the arguments name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	// parse returns the arguments after the flags, whose number must be n.
	parse := func(n int) ([]string, error) {
		if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
			return nil, err
		} else if err != nil {
			return nil, errUsage
		}
		if flags.NArg() != n {
			fmt.Fprintf(stderr, "image %s: %d arguments, want %d\n\n%s", args[0], flags.NArg(), n, usage)
			return nil, errUsage
		}
		return flags.Args(), nil
	}

	switch args[0] {
	case "build":
		output := flags.String("output", filepath.Join(source, "dist", "image"), "")
		if _, err := parse(0); err != nil {
			return err
		}
		return build(ctx, source, *output, stderr)
	case "push":
		repository := flags.String("repository", "ghcr.io/hitline/hitline", "")
		rest, err := parse(1)
		if err != nil {
			return err
		}
		digest, err := push(ctx, rest[0], *repository, stderr)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(stdout, digest)
		return err
	case "help", "-h", "--help", "-help":
		_, err := fmt.Fprint(stdout, usage)
		return err
	}
	fmt.Fprintf(stderr, "image: no command %s\n\n%s", strings.TrimSpace(args[0]), usage)
	return errUsage
}
