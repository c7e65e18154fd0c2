package buildlog

// automaton finds many patterns in one pass over a text that arrives in pieces (Aho and Corasick, "Efficient string
// matching", CACM 18.6, 1975). Its nodes form a trie with failure links. The root and its children, which handle nearly
// all bytes, have full tables.
type automaton struct {
	nodes []node
	table [][256]int32 // of nodes 0 to len(table)-1: the root and its children
}

type node struct {
	child   int32 // first child; 0 if none
	sibling int32 // next sibling; 0 if none
	fail    int32 // the longest proper suffix of this node that is a node
	depth   int32 // bytes from the root: the length of a partial match
	match   int32 // length of the longest pattern that ends here; 0 if none
	b       byte
	wraps   bool // on the path of a pattern that may continue after a line break
}

// pattern is a byte string to find. If it wraps, line breaks may interrupt it, as in the output of base64(1) and
// xxd(1).
type pattern struct {
	text  string
	wraps bool
}

// newAutomaton builds an automaton for non-empty patterns.
func newAutomaton(patterns []pattern) *automaton {
	a := &automaton{nodes: make([]node, 1)}
	for _, p := range patterns { // the root's children first, so that they get the numbers 1 to k
		a.grow(0, p.text[0])
	}
	k := len(a.nodes)
	for _, p := range patterns {
		at := int32(0)
		for i := range len(p.text) {
			at = a.grow(at, p.text[i])
			a.nodes[at].wraps = a.nodes[at].wraps || p.wraps
		}
		a.nodes[at].match = a.nodes[at].depth
	}
	a.link()
	a.table = make([][256]int32, k)
	for c := a.nodes[0].child; c != 0; c = a.nodes[c].sibling {
		a.table[0][a.nodes[c].b] = c
	}
	for i := 1; i < k; i++ {
		a.table[i] = a.table[0]
		for c := a.nodes[i].child; c != 0; c = a.nodes[c].sibling {
			a.table[i][a.nodes[c].b] = c
		}
	}
	return a
}

// find returns node at's child for b, or 0.
func (a *automaton) find(at int32, b byte) int32 {
	c := a.nodes[at].child
	for c != 0 && a.nodes[c].b != b {
		c = a.nodes[c].sibling
	}
	return c
}

func (a *automaton) grow(at int32, b byte) int32 {
	if c := a.find(at, b); c != 0 {
		return c
	}
	c := int32(len(a.nodes))
	a.nodes = append(a.nodes, node{sibling: a.nodes[at].child, depth: a.nodes[at].depth + 1, b: b})
	a.nodes[at].child = c
	return c
}

// link sets the failure links, breadth first: a node's link is shallower than the node.
func (a *automaton) link() {
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for c := a.nodes[at].child; c != 0; c = a.nodes[c].sibling {
			queue = append(queue, c)
			if at != 0 {
				f := a.nodes[at].fail
				for f != 0 && a.find(f, a.nodes[c].b) == 0 {
					f = a.nodes[f].fail
				}
				f = a.find(f, a.nodes[c].b)
				a.nodes[c].fail = f
			}
			if a.nodes[c].match == 0 {
				a.nodes[c].match = a.nodes[a.nodes[c].fail].match
			}
		}
	}
}

// span is the part of a text from start to before end.
type span struct{ start, end int }

// scan reads text, which begins at offset from, in state at, and adds matches to spans, which stay sorted and disjoint.
// A match that began before text counts from its first byte.
func (a *automaton) scan(at int32, text []byte, from int, spans []span) (int32, []span) {
	if len(a.nodes) == 1 {
		return 0, spans
	}
	k := int32(len(a.table))
	for i := from; i < len(text); i++ {
		if at < k {
			at = a.table[at][text[i]]
		} else {
			at = a.step(at, text[i])
		}
		if m := a.nodes[at].match; m > 0 {
			spans = join(spans, span{max(0, i+1-int(m)), i + 1})
		}
	}
	return at, spans
}

func (a *automaton) step(at int32, b byte) int32 {
	for int(at) >= len(a.table) {
		if c := a.find(at, b); c != 0 {
			return c
		}
		at = a.nodes[at].fail
	}
	return a.table[at][b]
}

// join adds a span that ends after all others, and merges overlapping ones.
func join(spans []span, s span) []span {
	for n := len(spans); n > 0 && spans[n-1].end > s.start; n-- {
		s.start = min(s.start, spans[n-1].start)
		spans = spans[:n-1]
	}
	return append(spans, s)
}

// pending returns how many of the last bytes may be the beginning of a match.
func (a *automaton) pending(at int32) int { return int(a.nodes[at].depth) }

// wrapped returns the longest partial match that may continue after a line break, or 0.
func (a *automaton) wrapped(at int32) int32 {
	for at != 0 && !a.nodes[at].wraps {
		at = a.nodes[at].fail
	}
	return at
}

// contains reports whether text contains any pattern.
func (a *automaton) contains(text string) bool {
	_, found := a.scan(0, []byte(text), 0, nil)
	return len(found) > 0
}
