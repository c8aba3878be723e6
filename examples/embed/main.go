// Command embed has hitline inside: it answers lookups of engines, follows their KV events, and asks in process which has
// most of a prompt. It is an example for gateways in Go.
//
//	go run ./examples/embed engine-0=tcp://10.0.0.10:5557,tcp://10.0.0.10:5558
//
// It reads prompts from standard input, a line of token ids each, until that ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/router"
	"github.com/hitline/hitline/router/fleet"
)

const (
	release   = "0.33.0" // of the engines, by whose rules lookups are answered and prompts are hashed
	blockSize = 16       // of the engines, in tokens
)

var model = router.ModelKey{Name: "llama"}

func main() {
	listen := flag.String("listen", "tcp://127.0.0.1:7557", "`address` for the lookups of engines")
	flag.Parse()
	if err := run(*listen, flag.Args(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run serves lookups at an address, follows engines, NAME=EVENTS,REPLAY each, and answers about prompts until in ends.
func run(listen string, engines []string, in io.Reader, out io.Writer) (err error) {
	// What engines have told to be stored is kept in memory. With lookup.ServiceConfig.Backend a store is asked.
	pool, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{VLLM: release, HashBlockSize: blockSize}})
	if err != nil {
		return err
	}
	listeners := []server.Listener{{Address: listen}}
	srv, err := server.New(pool, server.Config{Listeners: listeners, Limits: server.DefaultLimits()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shutdown(srv)) }()

	service, err := router.New(router.Config{Models: []router.Model{{
		ModelKey: model, Fleet: fleet.Config{BlockSize: blockSize}, Pool: pool, Hash: &router.Hashing{Release: release},
	}}})
	if err != nil {
		return err
	}
	defer service.Close()
	for _, argument := range engines {
		name, endpoints, _ := strings.Cut(argument, "=")
		events, replay, _ := strings.Cut(endpoints, ",")
		if err := service.Add(router.Source{Model: model.Name, Engine: name, Endpoint: events, Replay: replay}); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "lookups at %s\n", srv.Addrs()[0])

	var answer router.Answer // of this goroutine, for all its queries
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := answerPrompt(service, lines.Text(), &answer, out); err != nil {
			fmt.Fprintln(out, err)
		}
	}
	return nil
}

// answerPrompt writes who has most of a prompt, given by its token ids, and predicts that the prompt goes there.
func answerPrompt(service *router.Service, line string, answer *router.Answer, out io.Writer) error {
	query := router.Query{ModelKey: model, Loadable: true}
	for field := range strings.FieldsSeq(line) {
		id, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no token id", field)
		}
		query.Tokens = append(query.Tokens, id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := service.Query(ctx, &query, answer); err != nil {
		return err
	}
	var unsure []string
	for _, u := range answer.Unsure {
		unsure = append(unsure, fmt.Sprintf("%s %v", u.Engine, u.Reasons(nil)))
	}
	best := fleet.Prefix{ID: fleet.ID{Engine: "nobody"}}
	if len(answer.Holders) > 0 {
		best = answer.Holders[0]
	}
	fmt.Fprintf(out, "%s has %d of %d tokens, the store can load %d; unsure: %v\n",
		best.Engine, best.Tokens, len(query.Tokens), answer.LoadableTokens, unsure)
	if len(answer.Holders) == 0 {
		return nil
	}
	return service.Predict(ctx, model, best.ID, &query)
}

// shutdown drains the server.
func shutdown(srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return srv.Shutdown(ctx)
}
