package dotenv_test

import (
	"fmt"

	"slipway/internal/platform/dotenv"
)

func ExampleParse() {
	pairs, err := dotenv.Parse("# the shop\nexport NAME='Harbor & Sons'\nCOLOR=blue # of the sea\nCOLOR=\"green\"\n")
	fmt.Println(pairs, err)
	_, err = dotenv.Parse("NAME=Harbor\nCOLOR=\"blue\n")
	fmt.Println(err)
	// Output:
	// [{NAME Harbor & Sons} {COLOR green}] <nil>
	// Line 2 has an unclosed quote
}
