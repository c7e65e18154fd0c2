package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// data is the envelope of lists that stay short: all of it, or the page asked for.
type data[T any] struct {
	Data       []T         `json:"data"`
	Pagination *pagination `json:"pagination,omitempty" doc:"Only if page or limit was given."`
}

// page is the envelope of lists with pages.
type page[T any] struct {
	Data       []T        `json:"data"`
	Pagination pagination `json:"pagination"`
}

type pagination struct {
	Page       int `json:"page"`
	Limit      int `json:"limit"`
	Total      int `json:"total" doc:"Number of items on all pages."`
	TotalPages int `json:"totalPages"`
}

// Appender is an item that encodes itself in less time than encoding/json does. A test compares the two.
type Appender interface {
	Append(b []byte) ([]byte, error)
}

// quick encodes a page whose items encode themselves; nil where they don't.
func (p page[T]) quick() ([]byte, error) {
	if _, ok := any((*T)(nil)).(Appender); !ok {
		return nil, nil
	}
	b := append(make([]byte, 0, 1024*(len(p.Data)+1)), `{"data":[`...)
	for i := range p.Data {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = any(&p.Data[i]).(Appender).Append(b); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(b, `],"pagination":{"page":%d,"limit":%d,"total":%d,"totalPages":%d}}`+"\n",
		p.Pagination.Page, p.Pagination.Limit, p.Pagination.Total, p.Pagination.TotalPages), nil
}

func paged[T any](items []T, p paging, total int) page[T] {
	return page[T]{items, pagination{p.page, p.limit, total, (total + p.limit - 1) / p.limit}}
}

// part answers a list that stays short: whole, unless a page of it is asked for.
func part[T any](in PartIn, items []T, err error) (data[T], error) {
	if err != nil || in == (PartIn{}) {
		return data[T]{Data: items}, err
	}
	p, err := PageIn(in).parse()
	if err != nil {
		return data[T]{}, err
	}
	from := min((p.page-1)*p.limit, len(items))
	cut := paged(items[from:min(from+p.limit, len(items))], p, len(items))
	return data[T]{cut.Data, &cut.Pagination}, nil
}

// check refuses pages that no list has, for lists that cost something to make.
func (in PartIn) check() error {
	if in == (PartIn{}) {
		return nil
	}
	_, err := PageIn(in).parse()
	return err
}

// message is the answer of what has nothing else to say.
type message struct {
	Message string `json:"message"`
}

// ByID is the input of operations that name one thing. It is exported because huma sees
// no fields of embedded types that are not.
type ByID struct {
	ID string `path:"id"`
}

// PageIn is the input of lists with pages.
type PageIn struct {
	Page  whole `query:"page" doc:"Page number, from 1 (the default)."`
	Limit whole `query:"limit" doc:"Items per page: 25 by default, at most 100; larger values count as 100."`
}

// PartIn is the input of lists that stay short.
type PartIn struct {
	Page  whole `query:"page" doc:"Page number, from 1. Without page and limit, the whole list is returned."`
	Limit whole `query:"limit" doc:"Items per page, at most 100; larger values count as 100. Without page and limit, the whole list is returned."`
}

// partOf is the input of lists that stay short and belong to one thing.
type partOf struct {
	ByID
	PartIn
}

// whole is a whole number of at least 1 in a query. It stays text until it is read, so
// that the error is ours.
type whole string

// Schema is how the reference shows it.
func (whole) Schema(huma.Registry) *huma.Schema {
	one := 1.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &one}
}

// parse returns the number, or def when there is none. What does not fit counts as the
// largest that does.
func (w whole) parse(name string, def int) (int, error) {
	if w == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(string(w), 10, 32)
	digits := strings.Trim(string(w), "0123456789") == ""
	if err != nil && digits {
		return math.MaxInt32, nil
	}
	if err != nil || n < 1 || !digits {
		return 0, &fault.Error{
			Kind: fault.Invalid, Message: "Invalid " + name,
			Details: name + " must be a whole number of at least 1", Received: string(w), Code: "invalid_" + name,
		}
	}
	return int(n), nil
}

type paging struct{ page, limit int }

func (in PageIn) parse() (p paging, err error) {
	if p.page, err = in.Page.parse("page", 1); err != nil {
		return p, err
	}
	p.limit, err = in.Limit.parse("limit", 25)
	p.limit = min(p.limit, 100)
	return p, err
}

// oneOf checks a filter's value; empty means that it was not given.
func oneOf(name, value string, allowed ...string) error {
	if value == "" {
		return nil
	}
	for _, v := range allowed {
		if v == value {
			return nil
		}
	}
	return &fault.Error{
		Kind: fault.Invalid, Message: "Invalid " + name,
		Details: name + " must be " + either(allowed), Received: value, Code: "invalid_" + snake(name),
	}
}

// when shows a time, or null for none.
func when(t db.Time) *string {
	if t == 0 {
		return nil
	}
	s := t.String()
	return &s
}

// some shows a text, or null for an empty one.
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// plainText takes stored JSON's escapes for HTML back.
func plainText(stored json.RawMessage) json.RawMessage {
	if len(stored) == 0 {
		return nil // null
	}
	plain := map[string]byte{`\u0026`: '&', `\u003c`: '<', `\u003e`: '>'}
	out := make(json.RawMessage, 0, len(stored))
	for i := 0; i < len(stored); i++ {
		if stored[i] == '\\' && i+1 < len(stored) {
			if c, ok := plain[string(stored[i:min(i+6, len(stored))])]; ok {
				out = append(out, c)
				i += 5
				continue
			}
			out = append(out, stored[i]) // with what it escapes
			i++
		}
		out = append(out, stored[i])
	}
	return out
}

// each shows every item; it never returns nil, which JSON would write as null.
func each[T, U any](in []T, show func(T) U) []U {
	out := make([]U, 0, len(in))
	for _, v := range in {
		out = append(out, show(v))
	}
	return out
}
