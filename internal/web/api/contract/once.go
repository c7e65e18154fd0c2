package contract

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"slipway/internal/tenant/account"
	"slipway/internal/web/idempotency"
)

// Once returns the idempotency key of this request and a digest of its content. Answers for keys restricted to some
// sites, and answers with secrets, are stored per API key: a replay must not reveal them to another key.
func (r Route) Once(ctx context.Context, c account.Caller) (idempotency.Key, [32]byte, error) {
	req := From(ctx)
	h := req.HTTP
	keys := h.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return idempotency.Key{}, [32]byte{}, nil
	}
	if len(keys) > 1 || keys[0] == "" {
		return idempotency.Key{}, [32]byte{}, idempotency.Check("")
	}
	body, err := canonical(req.Body)
	if err != nil {
		return idempotency.Key{}, [32]byte{}, err
	}
	k := idempotency.Key{
		Scope:   string(c.User),
		Method:  h.Method,
		Path:    h.URL.EscapedPath(),
		Key:     keys[0],
		Owner:   string(c.Owner),
		Request: body,
	}
	if c.Team != "" { // the same user may act for several owners
		k.Scope += "/" + string(c.Owner) + "/" + string(c.Role)
	}
	if r.Private || len(c.Sites) > 0 {
		k.Scope += "/" + string(c.Key) + c.Grant
	}
	query, _ := url.ParseQuery(h.URL.RawQuery) // was checked before; Encode sorts
	sum := sha256.New()
	for _, part := range []string{k.Method, k.Path, query.Encode(), string(body)} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return k, [32]byte(sum.Sum(nil)), idempotency.Check(keys[0])
}

// canonical returns a normalized body: no whitespace, sorted names, one spelling of numbers and characters. Bodies that
// every parser reads alike are the same request. A body that isn't JSON is returned unchanged.
func canonical(body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if !utf8.Valid(body) || dec.Decode(&v) != nil || !errors.Is(dec.Decode(new(any)), io.EOF) {
		return body, nil // a deploy hook's body can be any text
	}
	return Encode(oneSpelling(v))
}

// oneSpelling normalizes 1.0, 1e0 and 1, within the precision of float64.
func oneSpelling(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = oneSpelling(x)
		}
	case []any:
		for i, x := range v {
			v[i] = oneSpelling(x)
		}
	case json.Number:
		f, err := v.Float64()
		if !strings.ContainsAny(string(v), ".eE") || err != nil {
			return v
		}
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
		return f
	}
	return v
}

// Keep returns an operation's answer in its stored form: {"status":201,"body":…}. The body is encoded once, so a replay
// sends the same bytes.
func (r Route) Keep(out any) ([]byte, error) {
	rep, err := r.reply(out)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"status":%d,"body":%s}`, rep.Status, bytes.TrimSuffix(rep.Body, []byte("\n"))), nil
}

// Unkeep decodes an answer that Keep stored.
func Unkeep(b []byte, replayed bool, err error) (*Reply, error) {
	if err != nil {
		return nil, err
	}
	status, body, found := bytes.Cut(bytes.TrimPrefix(bytes.TrimSpace(b), []byte(`{"status":`)), []byte(`,"body":`))
	body, whole := bytes.CutSuffix(body, []byte("}"))
	code, err := strconv.Atoi(string(status))
	if !found || !whole || err != nil {
		return nil, errors.New("decode stored answer: it has another form")
	}
	rep := &Reply{Status: code, ContentType: "application/json", Body: append(body[:len(body):len(body)], '\n')}
	if replayed {
		rep.Replayed = "true"
	}
	return rep, nil
}
