package trie

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// After any changes, a trie has the same content as a map, and a trie that is still referenced never changes.
func TestTrie(t *testing.T) {
	t.Parallel()
	var now Trie[int]
	want := map[string]int{}
	type moment struct {
		trie Trie[int]
		want map[string]int
	}
	var held []moment
	for round := range 40 {
		e := now.Edit()
		for range rand.IntN(300) {
			key := fmt.Sprint(rand.IntN(500))
			if rand.IntN(3) == 0 {
				e.Drop(key)
				delete(want, key)
			} else {
				e.Set(key, round)
				want[key] = round
			}
		}
		now = e.Trie
		held = append(held, moment{now, maps.Clone(want)})
	}
	for i, m := range held {
		if got := maps.Collect(m.trie.All); !maps.Equal(got, m.want) || m.trie.Len() != len(m.want) {
			t.Fatalf("moment %d: %d keys, Len %d, want %d", i, len(got), m.trie.Len(), len(m.want))
		}
		for n := range 500 {
			key := fmt.Sprint(n)
			got, ok := m.trie.Get(key)
			if w, there := m.want[key]; ok != there || got != w {
				t.Fatalf("moment %d: %s is %d, %v; want %d, %v", i, key, got, ok, w, there)
			}
		}
	}
	e := now.Edit()
	e.Drop("none")
	if e.Changed() {
		t.Error("dropping nothing is a change")
	}
	e.Set("x", 1)
	if !e.Changed() {
		t.Error("not changed")
	}
}

// BenchmarkTrie looks up hosts, and changes one host in a copy.
func BenchmarkTrie(b *testing.B) {
	for _, n := range []int{30, 1000, 100_000} {
		hosts := make([]string, n)
		e := Trie[int]{}.Edit()
		for i := range hosts {
			hosts[i] = fmt.Sprintf("www.shop-%d.example.com", i*7919%1_000_003)
			e.Set(hosts[i], i)
		}
		all := e.Trie
		b.Run(fmt.Sprint("get/hosts=", n), func(b *testing.B) {
			for i := 0; b.Loop(); i = (i + 1) % n {
				if got, _ := all.Get(hosts[i]); got != i {
					b.Fatalf("%s is %d, want %d", hosts[i], got, i)
				}
			}
		})
		b.Run(fmt.Sprint("change/hosts=", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % n {
				e := all.Edit()
				e.Set(hosts[i], -1)
			}
		})
	}
}
