package db

import (
	"strconv"
	"strings"
)

// Args are the values of a statement that is put together as it is needed.
type Args []any

// Add adds a value and returns the placeholder that stands for it: $1, $2, …
func (a *Args) Add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// AddList adds every value of a list and returns their placeholders as they stand between
// the parentheses of IN (…). For an empty list that is NULL, which nothing is equal to.
func AddList[T any](a *Args, list []T) string {
	if len(list) == 0 {
		return "NULL"
	}
	marks := make([]string, len(list))
	for i, v := range list {
		marks[i] = a.Add(v)
	}
	return strings.Join(marks, ", ")
}
