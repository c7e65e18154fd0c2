package repository

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// Objects whose name is chosen, not computed from what they hold, are of a kind, and have an id:
// the first half of the name tells us, and nobody else, the kind.

// named is the name of an object of a kind.
func (k *keys) named(kind string, id string) string {
	sum := sha256.Sum256([]byte(id))
	return k.prefix(kind) + hex.EncodeToString(sum[:16])
}

func (k *keys) prefix(kind string) string {
	h := hmac.New(sha256.New, k.name)
	h.Write([]byte(kind))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// PutNamed stores an object under a name that is its own for ever.
func (r *Repository) PutNamed(ctx context.Context, kind string, id string, v any) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return err
	}
	name := k.named(kind, id)
	return r.store(ctx, name, k.seal(name, plain))
}

// GetNamed reads an object that PutNamed has stored.
func (r *Repository) GetNamed(ctx context.Context, name string, v any) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	sealed, err := r.read(ctx, name, 1<<20)
	if err != nil {
		return err
	}
	plain, err := k.unseal(name, sealed)
	if err != nil {
		r.at.Distrust(name)
		return err
	}
	return json.Unmarshal(plain, v)
}

// NameOf is the name of an object of a kind.
func (r *Repository) NameOf(ctx context.Context, kind, id string) (string, error) {
	k, err := r.open(ctx)
	if err != nil {
		return "", err
	}
	return k.named(kind, id), nil
}

// Named lists the names of the objects of each kind.
func (r *Repository) Named(ctx context.Context, kinds ...string) ([][]string, error) {
	k, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	names := make([][]string, len(kinds))
	for e, err := range r.at.List(ctx) {
		if err != nil {
			return nil, err
		}
		for i, kind := range kinds {
			if strings.HasPrefix(e.Name, k.prefix(kind)) {
				names[i] = append(names[i], e.Name)
			}
		}
	}
	return names, nil
}

// DeleteNamed removes an object of a kind.
func (r *Repository) DeleteNamed(ctx context.Context, kind, id string) error {
	k, err := r.open(ctx)
	if err != nil {
		return err
	}
	return r.at.Delete(ctx, k.named(kind, id))
}

// DeleteObject removes an object by its name. It is no error when it is absent.
func (r *Repository) DeleteObject(ctx context.Context, name string) error {
	r.at.Distrust(name)
	return r.at.Delete(ctx, name)
}
