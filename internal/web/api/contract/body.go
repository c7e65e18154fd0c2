package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
)

// Limits of a body: bytes, nesting, and the time it may take to arrive.
const (
	MaxBody  = 1 << 20
	maxDepth = 32
	bodyTime = 30 * time.Second
)

var ErrTooLarge = fault.New(fault.TooLarge, "body_too_large", "The request body is too large", "the limit is 1 MiB")

// ReadBody reads and checks a request's JSON. It returns nil for an empty body. It treats a missing or unusual
// Content-Type as JSON, but refuses those that browsers send from forms.
func ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	conn := http.NewResponseController(w)
	conn.SetReadDeadline(time.Now().Add(bodyTime)) // not supported by test recorders
	defer conn.SetReadDeadline(time.Time{})
	if c := strings.Join(r.Header["Content-Encoding"], ","); c != "" && !strings.EqualFold(c, "identity") {
		Discard(r)
		return nil, fault.New(fault.Media, "unsupported_content_encoding", "Unsupported Content-Encoding",
			"send the body without Content-Encoding").Got(c)
	}
	if r.ContentLength > MaxBody {
		Discard(r)
		return nil, ErrTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Message: "Incomplete request body", Code: "body_incomplete"}
	}
	if len(body) > MaxBody {
		Discard(r)
		return nil, ErrTooLarge
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")) // a byte order mark, which RFC 8259 §8.1 allows to ignore
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil, nil
	}
	if t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t == "application/x-www-form-urlencoded" ||
		strings.HasPrefix(t, "multipart/") {
		return nil, fault.New(fault.Media, "unsupported_media_type", "Unsupported content type",
			"send JSON with Content-Type: application/json").Got(t)
	}
	return body, checkJSON(body)
}

// largeWait is how long a body over MaxBody waits for its turn. Git providers wait longer than that.
const largeWait = 5 * time.Second

// readAnyBody reads the body of a hook's call, which may not be JSON. A body over the hook's limit is truncated to the
// limit plus one byte.
func (a *API) readAnyBody(w http.ResponseWriter, r *http.Request, req *request) ([]byte, error) {
	i := slices.IndexFunc(a.hooks, func(h Hook) bool { return h.Is(r.URL.Path) })
	if i < 0 {
		return nil, nil
	}
	most := a.hooks[i].Most()
	conn := http.NewResponseController(w)
	conn.SetReadDeadline(time.Now().Add(bodyTime))
	defer conn.SetReadDeadline(time.Time{})
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, &fault.Error{Kind: fault.Invalid, Message: "Incomplete request body", Code: "body_incomplete"}
	}
	if req.hook == "" { // only callers of an existing hook may use a place for large bodies
		most = MaxBody
	}
	if len(body) > MaxBody && most > MaxBody {
		who := fair.Who{Owner: req.hook}
		if req.Push != nil {
			who.Owner = string(req.Push.Owner)
		}
		wait, done := context.WithTimeout(r.Context(), largeWait)
		defer done()
		release, err := a.large.Take(wait, who)
		if err != nil {
			Discard(r)
			return nil, &fault.Error{
				Kind: fault.Unavailable, Message: "Too many large requests at once", Code: "busy", RetryAfter: 2 * largeWait,
			}
		}
		context.AfterFunc(r.Context(), release) // after the answer
		rest, err := io.ReadAll(io.LimitReader(r.Body, int64(most+1-len(body))))
		if err != nil {
			return nil, &fault.Error{Kind: fault.Invalid, Message: "Incomplete request body", Code: "body_incomplete"}
		}
		body = append(body, rest...)
	}
	if len(body) > most {
		Discard(r)
	}
	return body, nil
}

// Discard reads the rest of a body for a while: a client that is still sending would otherwise get a connection reset
// instead of the answer.
func Discard(r *http.Request) {
	if r.Header.Get("Expect") == "" {
		io.CopyN(io.Discard, r.Body, 16*MaxBody)
	}
}

// checkJSON refuses JSON that parsers interpret differently, before anything is decoded: invalid or trailing text,
// invalid UTF-8, NUL characters, duplicate names in an object (in any letter case), nesting beyond 32 levels, and a
// body that isn't an object, an array or null.
func checkJSON(body []byte) error {
	refuse := func(details string) error {
		return fault.New(fault.Invalid, "malformed_json", "Malformed JSON", details)
	}
	if !utf8.Valid(body) {
		return refuse("the body is not UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		if at := (*json.SyntaxError)(nil); errors.As(err, &at) {
			return refuse(fmt.Sprintf("%s, at byte %d", at, at.Offset))
		}
		return refuse("the body is not JSON")
	}
	if c := bytes.TrimLeft(body, " \t\r\n")[0]; c != '{' && c != '[' && c != 'n' {
		return &fault.Error{Kind: fault.Invalid, Message: "The request body is not a JSON object", Code: "invalid_body"}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a name was read; its value follows
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return refuse("the body is not JSON")
		}
		s, isString := tok.(string)
		if isString && strings.ContainsRune(s, 0) {
			return refuse("NUL characters are not allowed")
		}
		if n := len(stack); n > 0 && stack[n-1].names != nil {
			top := &stack[n-1]
			if isString && !top.value {
				fold := strings.ToLower(strings.ToUpper(s)) // folds like encoding/json, to which ſ equals s
				if top.names[fold] {
					return refuse("a name appears twice in one object")
				}
				top.names[fold], top.value = true, true
				continue
			}
			top.value = false
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
		if len(stack) > maxDepth {
			return refuse(fmt.Sprintf("objects and arrays nest at most %d levels deep", maxDepth))
		}
	}
}
