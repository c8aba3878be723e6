package redis_test

import (
	"fmt"

	"github.com/hitline/hitline/backend/redis"
)

func ExampleNew() {
	b, err := redis.New(redis.Config{URL: "redis-cluster://:secret@10.0.0.1?addr=10.0.0.2", KeyPrefix: "llama"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b)
	_ = b.Close()
	// Output: redis at 10.0.0.1:6379,10.0.0.2:6379
}
