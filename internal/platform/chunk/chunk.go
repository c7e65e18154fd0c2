// Package chunk owns statements that carry many rows: a list cut into a few sizes, so that each text is
// made and prepared once, and the placeholders of the rows.
package chunk

import (
	"strconv"
	"strings"
	"sync"
)

// Most is the most rows in one statement.
const Most = 64

// sizes are how many rows one statement carries: few different texts, so that each
// is prepared once.
var sizes = []int{Most, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// Each calls fn for parts of the list whose lengths are among sizes.
func Each[T any](list []T, fn func(part []T) error) error {
	for _, size := range sizes {
		for len(list) >= size {
			if err := fn(list[:size]); err != nil {
				return err
			}
			list = list[size:]
		}
	}
	return nil
}

// Text returns a function that makes the text of a statement for a number of rows, each once.
func Text(text func(n int) string) func(n int) string {
	var once [Most + 1]sync.Once
	var made [Most + 1]string
	return func(n int) string {
		once[n].Do(func() { made[n] = text(n) })
		return made[n]
	}
}

// Marks writes n placeholders from a number on.
func Marks(from, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(from+i)
	}
	return strings.Join(list, ", ")
}

// Values writes n rows of placeholders, each cast to its column's type.
func Values(n int, types ...string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j, t := range types {
			if j > 0 {
				b.WriteString(", ")
			}
			b.WriteString("CAST($" + strconv.Itoa(i*len(types)+j+1) + " AS " + t + ")")
		}
		b.WriteByte(')')
	}
	return b.String()
}
