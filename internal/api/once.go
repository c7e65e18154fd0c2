package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"

	"slipway/internal/account"
	"slipway/internal/idempotency"
)

// once is which request this is, for those that want it to act once. A key that sees
// only some sites, and an answer that holds a secret, are kept apart per key: a replay
// must not show what the asking key may not see.
func (r Route) once(ctx context.Context, c account.Caller) (idempotency.Key, [32]byte, error) {
	req := from(ctx)
	h := req.http
	keys := h.Header["Idempotency-Key"]
	if len(keys) == 0 {
		return idempotency.Key{}, [32]byte{}, nil
	}
	if len(keys) > 1 || keys[0] == "" {
		return idempotency.Key{}, [32]byte{}, idempotency.Check("")
	}
	k := idempotency.Key{Scope: string(c.User), Method: h.Method, Path: h.URL.EscapedPath(), Key: keys[0]}
	if r.Private || len(c.Sites) > 0 {
		k.Scope += "/" + string(c.Key)
	}
	query, _ := url.ParseQuery(h.URL.RawQuery) // checked before; Encode sorts
	sum := sha256.New()
	for _, part := range []string{k.Method, k.Path, query.Encode(), string(req.body)} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return k, [32]byte(sum.Sum(nil)), idempotency.Check(keys[0])
}

// kept is an answer as it is stored.
type kept struct {
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

func (r Route) keep(out any) ([]byte, error) {
	rep, err := r.reply(out)
	if err != nil {
		return nil, err
	}
	return json.Marshal(kept{rep.Status, rep.Body})
}

func unkeep(b []byte, replayed bool, err error) (*reply, error) {
	if err != nil {
		return nil, err
	}
	var k kept
	if err := json.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("decode kept answer: %w", err)
	}
	rep := &reply{Status: k.Status, ContentType: "application/json", Body: append(k.Body, '\n')}
	if replayed {
		rep.Replayed = "true"
	}
	return rep, nil
}
