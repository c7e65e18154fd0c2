// Package chunk owns SQL statements for many rows: it splits lists into a few fixed sizes, so that each statement is
// built and prepared once, and writes placeholders.
package chunk

import (
	"strconv"
	"strings"
	"sync"
)

// Most is the highest number of rows per statement.
const Most = 64

// sizes are the allowed numbers of rows per statement.
var sizes = []int{Most, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1}

// Each calls fn for consecutive parts of the list, whose lengths are among sizes.
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

// Text returns a function that builds the statement for n rows and caches it.
func Text(text func(n int) string) func(n int) string {
	var once [Most + 1]sync.Once
	var made [Most + 1]string
	return func(n int) string {
		once[n].Do(func() { made[n] = text(n) })
		return made[n]
	}
}

// Marks returns n placeholders, numbered from from.
func Marks(from, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = "$" + strconv.Itoa(from+i)
	}
	return strings.Join(list, ", ")
}

// Values returns n rows of placeholders, each cast to its column's type.
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
