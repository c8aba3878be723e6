package metrics_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hitline/hitline/coordinator"
	"github.com/hitline/hitline/lookup"
	"github.com/hitline/hitline/lookup/metrics"
)

// The metrics of a service that is used in process, without a server.
func ExampleNewServiceCollector() {
	service, err := lookup.NewService(lookup.ServiceConfig{Pool: coordinator.Pool{HashBlockSize: 16}})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewServiceCollector(service))
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(families[0].GetName())
	// Output: hitline_build_info
}
