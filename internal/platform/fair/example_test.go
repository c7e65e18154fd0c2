package fair_test

import (
	"fmt"

	"slipway/internal/platform/fair"
)

// Of ten places, one owner gets at most four, and one of its sites at most three.
func ExamplePool_Try() {
	pool := fair.New(fair.Config{Places: 10, Owner: 4, Site: 3})
	for _, site := range []string{"blog", "blog", "blog", "blog", "shop", "docs"} {
		_, ok := pool.Try(fair.Who{Owner: "ann", Site: site})
		fmt.Println(site, ok)
	}
	// Output:
	// blog true
	// blog true
	// blog true
	// blog false
	// shop true
	// docs false
}
