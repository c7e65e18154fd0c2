package trie_test

import (
	"fmt"

	"slipway/internal/platform/trie"
)

// Readers keep the version that they have while an edit makes the next one.
func ExampleTrie_Edit() {
	var hosts trie.Trie[int]
	edit := hosts.Edit()
	edit.Set("a.example", 1)
	edit.Set("b.example", 2)
	next := edit.Trie
	_, before := hosts.Get("b.example")
	n, after := next.Get("b.example")
	fmt.Println(before, n, after)
	// Output: false 2 true
}
