package statuspage_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/server"
	"github.com/hitline/hitline/lookup/statuspage"
)

// The page of a server that a program embeds, under a path of its own.
func ExampleNew() {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.New(service, server.Config{})
	if err != nil {
		log.Fatal(err)
	}
	page := statuspage.New(srv, statuspage.Options{Local: true})
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/hitline/", http.StripPrefix("/hitline", page))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/hitline/status", nil))
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output: 200 application/json
}
