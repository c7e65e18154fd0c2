package contract

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

// Data is the envelope of short lists: complete, or a requested page.
type Data[T any] struct {
	Data       []T         `json:"data"`
	Pagination *pagination `json:"pagination,omitempty" doc:"Only if page or limit was given."`
}

// Page is the envelope of paginated lists.
type Page[T any] struct {
	Data       []T        `json:"data"`
	Pagination pagination `json:"pagination"`
}

type pagination struct {
	Page       int `json:"page"`
	Limit      int `json:"limit"`
	Total      int `json:"total" doc:"Number of items on all pages."`
	TotalPages int `json:"totalPages"`
}

// Appender is an item that encodes itself faster than encoding/json. A test compares both results.
type Appender interface {
	Append(b []byte) ([]byte, error)
}

// quick encodes a page of Appenders; nil if its items aren't.
func (p Page[T]) quick() ([]byte, error) {
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

func Paged[T any](items []T, p Paging, total int) Page[T] {
	return Page[T]{items, pagination{p.Page, p.Limit, total, (total + p.Limit - 1) / p.Limit}}
}

// Part returns a short list, or a page of it if requested.
func Part[T any](in PartIn, items []T, err error) (Data[T], error) {
	if err != nil || in == (PartIn{}) {
		return Data[T]{Data: items}, err
	}
	p, err := PageIn(in).Parse()
	if err != nil {
		return Data[T]{}, err
	}
	from := min((p.Page-1)*p.Limit, len(items))
	cut := Paged(items[from:min(from+p.Limit, len(items))], p, len(items))
	return Data[T]{cut.Data, &cut.Pagination}, nil
}

// Check refuses invalid pages, for lists that are expensive to make.
func (in PartIn) Check() error {
	if in == (PartIn{}) {
		return nil
	}
	_, err := PageIn(in).Parse()
	return err
}

// Message is an answer that contains only a message.
type Message struct {
	Message string `json:"message"`
}

// ByID is the input of operations on one resource. It is exported because huma ignores embedded types that aren't.
type ByID[T ~string] struct {
	ID T `path:"id"`
}

// PageIn is the input of paginated lists.
type PageIn struct {
	Page  Whole `query:"page" doc:"Page number, from 1 (the default)."`
	Limit Whole `query:"limit" doc:"Items per page: 25 by default, at most 100; larger values count as 100."`
}

// PartIn is the input of short lists.
type PartIn struct {
	Page  Whole `query:"page" doc:"Page number, from 1. Without page and limit, the whole list is returned."`
	Limit Whole `query:"limit" doc:"Items per page, at most 100; larger values count as 100. Without page and limit, the whole list is returned."`
}

// PartOf is the input of short lists that belong to one resource.
type PartOf[T ~string] struct {
	ByID[T]
	PartIn
}

// Whole is a positive integer in a query. It is parsed by the handler, so that the error is ours.
type Whole string

// Schema returns its schema in the document.
func (Whole) Schema(huma.Registry) *huma.Schema {
	one := 1.0
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &one}
}

// Parse returns the number, or def if it is missing. A number that is too large counts as the largest possible.
func (w Whole) Parse(name string, def int) (int, error) {
	if w == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(string(w), 10, 32)
	digits := strings.Trim(string(w), "0123456789") == ""
	if err != nil && digits {
		return math.MaxInt32, nil
	}
	if err != nil || n < 1 || !digits {
		return 0, fault.New(fault.Invalid, "invalid_"+name, "Invalid "+name,
			name+" must be a whole number of at least 1").Got(string(w))
	}
	return int(n), nil
}

type Paging struct{ Page, Limit int }

func (in PageIn) Parse() (p Paging, err error) {
	if p.Page, err = in.Page.Parse("page", 1); err != nil {
		return p, err
	}
	p.Limit, err = in.Limit.Parse("limit", 25)
	p.Limit = min(p.Limit, 100)
	return p, err
}

// OneOf checks a filter's value; empty means that it isn't set.
func OneOf(name, value string, allowed ...string) error {
	if value == "" {
		return nil
	}
	for _, v := range allowed {
		if v == value {
			return nil
		}
	}
	return fault.New(fault.Invalid, "invalid_"+Snake(name), "Invalid "+name, name+" must be "+either(allowed)).Got(value)
}

// When formats a time; null if it is zero.
func When(t db.Time) *string {
	if t == 0 {
		return nil
	}
	s := t.String()
	return &s
}

// Some returns a text; null if it is empty.
func Some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// PlainText removes the HTML escapes of stored JSON.
func PlainText(stored json.RawMessage) json.RawMessage {
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
			out = append(out, stored[i]) // and the character that it escapes
			i++
		}
		out = append(out, stored[i])
	}
	return out
}

// Each converts every item. It never returns nil, which would be null in JSON.
func Each[T, U any](in []T, show func(T) U) []U {
	out := make([]U, 0, len(in))
	for _, v := range in {
		out = append(out, show(v))
	}
	return out
}

type StatusesBody struct {
	OK           int64 `json:"2xx"`
	Redirected   int64 `json:"3xx" doc:"Redirects, and 304 for cached content."`
	ClientErrors int64 `json:"4xx"`
	ServerErrors int64 `json:"5xx"`
}
