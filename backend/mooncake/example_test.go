package mooncake_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hitline/hitline/backend/mooncake"
)

func ExampleClient_Info() {
	client, err := mooncake.New(mooncake.Config{
		Masters: []string{"10.0.0.1:50051", "10.0.0.2:50051"},
		Tenant:  "team-a",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, err := client.Info(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	switch info.Form {
	case mooncake.FormTenant:
		fmt.Println(info.Leader, "has tenants")
	case mooncake.FormKeys:
		fmt.Println(info.Leader, "ignores the tenant")
	}
}
