package edge

import "hash/maphash"

// trie is an immutable map of strings: two levels of 256 places, then short lists. A
// change copies the path to it, a few kilobytes however many hosts there are, so a reader
// that has a trie needs no lock and sees nothing of what is being changed.
type trie[V any] struct {
	root *[256]*branch[V]
	n    int
}

type branch[V any] [256][]leaf[V]

type leaf[V any] struct {
	key string
	v   V
}

var trieSeed = maphash.MakeSeed()

func place(key string) (byte, byte) {
	sum := maphash.String(trieSeed, key)
	return byte(sum), byte(sum >> 8)
}

func (t *trie[V]) get(key string) (v V, ok bool) {
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

// all yields what is there, in no order.
func (t *trie[V]) all(yield func(string, V) bool) {
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

// edit is a trie that is being made from another. What it has copied once is its own, so
// many changes cost no more than the copy of everything.
type edit[V any] struct {
	trie[V]
	own     map[*branch[V]]bool
	changed bool
}

func (t trie[V]) edit() *edit[V] { return &edit[V]{trie: t} }

func (e *edit[V]) branch(key string) *[]leaf[V] {
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

func (e *edit[V]) set(key string, v V) {
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

func (e *edit[V]) drop(key string) {
	if _, ok := e.get(key); !ok {
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
