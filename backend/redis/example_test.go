package redis_test

import (
	"fmt"

	"github.com/hitline/hitline/backend/redis"
)

func ExampleNew() {
	for _, layout := range []redis.Layout{redis.LayoutKeys, redis.LayoutSet} {
		b, err := redis.New(redis.Config{
			URL:       "redis-cluster://:secret@10.0.0.1?addr=10.0.0.2",
			KeyPrefix: "llama",
			Layout:    layout,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(layout, "in", b)
		_ = b.Close()
	}
	// Output:
	// keys in redis at 10.0.0.1:6379,10.0.0.2:6379
	// set in redis at 10.0.0.1:6379,10.0.0.2:6379
}
