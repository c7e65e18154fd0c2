package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"slipway/internal/platform/seal"
)

// accountTo returns the installation's account with an authority. It registers the account the first time; all nodes
// share it.
func (i *issuer) accountTo(ctx context.Context) (acme.Account, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.account != nil {
		return *i.account, nil
	}
	account, err := i.loadAccount(ctx)
	if damaged(err) {
		i.s.c.Log.ErrorContext(ctx, "ACME account is damaged; registering another one", "ca", i.url, "err", err)
	}
	if errors.Is(err, fs.ErrNotExist) || damaged(err) {
		account, err = i.register(ctx)
	}
	if err != nil {
		return acme.Account{}, fmt.Errorf("%w with %s: %w", errAccount, i.host, err)
	}
	i.account = &account
	return account, nil
}

// Accounts with different contacts have different keys.
func (i *issuer) accountKeys() (registration, key string) {
	base := "acme/" + i.key + "/users/" + certmagic.StorageKeys.Safe(i.s.c.Email+"@")
	return base + "/account.json", base + "/account.key"
}

func (i *issuer) loadAccount(ctx context.Context) (acme.Account, error) {
	registration, key := i.accountKeys()
	text, err := i.s.storage.Load(ctx, registration)
	if err != nil {
		return acme.Account{}, err
	}
	var a acme.Account
	if err := json.Unmarshal(text, &a); err != nil {
		return acme.Account{}, fmt.Errorf("read registration: %w: %w", errDamaged, err)
	}
	if text, err = i.s.storage.Load(ctx, key); err != nil {
		return acme.Account{}, err
	}
	if a.PrivateKey, err = certmagic.PEMDecodePrivateKey(text); err != nil {
		return acme.Account{}, fmt.Errorf("read account key: %w: %w", errDamaged, err)
	}
	return a, nil
}

// damaged reports whether a stored value can't be used. Missing and temporarily unreadable values aren't damaged.
func damaged(err error) bool { return errors.Is(err, errDamaged) || errors.Is(err, seal.ErrOpen) }

// register creates an account, one node at a time. By naming a directory on the command line, the operator agrees to
// its terms.
func (i *issuer) register(ctx context.Context) (acme.Account, error) {
	registration, keyName := i.accountKeys()
	if err := i.s.storage.Lock(ctx, registration); err != nil {
		return acme.Account{}, err
	}
	defer i.s.storage.Unlock(context.WithoutCancel(ctx), registration)
	if a, err := i.loadAccount(ctx); !errors.Is(err, fs.ErrNotExist) && !damaged(err) {
		return a, err // another node was faster
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return acme.Account{}, err
	}
	a := acme.Account{PrivateKey: key, TermsOfServiceAgreed: true}
	if i.s.c.Email != "" {
		a.Contact = []string{"mailto:" + i.s.c.Email}
	}
	if b, ok := i.s.c.Bindings[i.host]; ok {
		if err := a.SetExternalAccountBinding(ctx, i.client, acme.EAB{KeyID: b.KeyID, MACKey: strings.TrimRight(b.HMAC, "=")}); err != nil {
			return acme.Account{}, fmt.Errorf("bind: %w", err)
		}
	}
	// Store the key first: an account without its key is useless.
	pem, err := certmagic.PEMEncodePrivateKey(key)
	if err != nil {
		return acme.Account{}, err
	}
	if err := i.s.storage.Store(ctx, keyName, pem); err != nil {
		return acme.Account{}, err
	}
	if a, err = i.client.NewAccount(ctx, a); err != nil {
		return acme.Account{}, fmt.Errorf("register: %w", err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return acme.Account{}, err
	}
	if err := i.s.storage.Store(ctx, registration, text); err != nil {
		return acme.Account{}, err
	}
	i.s.c.Log.InfoContext(ctx, "ACME account registered", "ca", i.url)
	return a, nil
}

// forget deletes an account that the authority doesn't know.
func (i *issuer) forget(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.account = nil
	registration, _ := i.accountKeys()
	return i.s.storage.Delete(ctx, registration)
}
