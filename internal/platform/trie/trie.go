// Package trie owns immutable maps of strings, of which a changed copy costs only what differs. ADR 0029 compares a
// library that was measured.
package trie

import "hash/maphash"

// Trie is an immutable map of strings: two levels of 256 slots, then short lists. A change copies the path to it, a few
// kilobytes however many keys there are, so readers need no lock.
type Trie[V any] struct {
	root *[256]*branch[V]
	n    int
}

type branch[V any] [256][]leaf[V]

type leaf[V any] struct {
	key string
	v   V
}

var seed = maphash.MakeSeed()

func place(key string) (byte, byte) {
	sum := maphash.String(seed, key)
	return byte(sum), byte(sum >> 8)
}

// Get returns the value of a key.
func (t *Trie[V]) Get(key string) (v V, ok bool) {
	if t.root == nil {
		return v, false
	}
	i, j := place(key)
	b := t.root[i]
	if b == nil {
		return v, false
	}
	for k := range b[j] {
		if b[j][k].key == key {
			return b[j][k].v, true
		}
	}
	return v, false
}

// Len returns how many keys there are.
func (t *Trie[V]) Len() int { return t.n }

// All yields all keys and values in no order.
func (t *Trie[V]) All(yield func(string, V) bool) {
	if t.root == nil {
		return
	}
	for _, b := range t.root {
		if b == nil {
			continue
		}
		for _, list := range b {
			for _, l := range list {
				if !yield(l.key, l.v) {
					return
				}
			}
		}
	}
}

// Edit is a Trie under construction. It copies each part at most once, so many changes cost at most one copy of
// everything.
type Edit[V any] struct {
	Trie[V]
	own     map[*branch[V]]bool
	changed bool
}

// Edit begins a changed copy of t.
func (t Trie[V]) Edit() *Edit[V] { return &Edit[V]{Trie: t} }

// Changed reports whether anything has been set or dropped.
func (e *Edit[V]) Changed() bool { return e.changed }

func (e *Edit[V]) branch(key string) *[]leaf[V] {
	if !e.changed {
		e.changed, e.own = true, map[*branch[V]]bool{}
		root := new([256]*branch[V])
		if e.root != nil {
			*root = *e.root
		}
		e.root = root
	}
	i, j := place(key)
	b := e.root[i]
	if !e.own[b] {
		fresh := new(branch[V])
		if b != nil {
			*fresh = *b
		}
		b = fresh
		e.root[i], e.own[b] = b, true
	}
	return &b[j]
}

// Set sets the value of a key.
func (e *Edit[V]) Set(key string, v V) {
	at := e.branch(key)
	list := make([]leaf[V], 0, len(*at)+1)
	for _, l := range *at {
		if l.key != key {
			list = append(list, l)
		}
	}
	e.n += len(list) + 1 - len(*at)
	*at = append(list, leaf[V]{key, v})
}

// Drop removes a key.
func (e *Edit[V]) Drop(key string) {
	if _, ok := e.Get(key); !ok {
		return
	}
	at := e.branch(key)
	var list []leaf[V]
	for _, l := range *at {
		if l.key != key {
			list = append(list, l)
		}
	}
	e.n--
	*at = list
}
