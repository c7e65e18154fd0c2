package domain

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/platform/db"
)

//go:embed rdap.json
var shippedBootstrap []byte

const bootstrapMax = 2 << 20 // IANA's file has about 100 KiB

// bases maps a suffix to its registry's RDAP base URLs, which are https and end in a slash.
type bases map[string][]string

// parseBootstrap reads the format of RFC 9224 §4. It skips URLs that aren't https.
func parseBootstrap(body []byte) (bases, error) {
	var file struct {
		Services [][][]string `json:"services"`
	}
	if err := json.Unmarshal(body, &file); err != nil {
		return nil, fmt.Errorf("read rdap bootstrap: %w", err)
	}
	b := bases{}
	for _, s := range file.Services {
		if len(s) != 2 {
			return nil, errors.New("read rdap bootstrap: a service is not a pair of lists")
		}
		var urls []string
		for _, raw := range s[1] {
			u, err := url.Parse(raw)
			if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
				len(raw) > 500 {
				continue
			}
			urls = append(urls, strings.TrimSuffix(u.String(), "/")+"/")
		}
		if len(urls) == 0 {
			continue
		}
		for _, suffix := range s[0] {
			if suffix, err := ascii(suffix); err == nil {
				b[suffix] = urls
			}
		}
	}
	if len(b) == 0 {
		return nil, errors.New("read rdap bootstrap: it names no registry")
	}
	return b, nil
}

// find returns the bases for the longest suffix of name (RFC 9224 §4).
func (b bases) find(name string) []string {
	for rest := name; rest != ""; _, rest, _ = strings.Cut(rest, ".") {
		if urls := b[rest]; urls != nil {
			return urls
		}
	}
	return nil
}

// loadBootstrap loads the list last fetched by any node and returns the time of the fetch.
func (d *Domains) loadBootstrap(ctx context.Context) (db.Time, error) {
	var body string
	var at db.Time
	err := d.c.DB.QueryRow(ctx, "SELECT body, fetched_at FROM rdap_bootstrap WHERE id = 1").Scan(&body, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("load rdap bootstrap: %w", err)
	}
	b, err := parseBootstrap([]byte(body))
	if err != nil {
		return 0, nil // fetch it again
	}
	d.rdap.learn(b)
	return at, nil
}

// refreshBootstrap fetches IANA's list if the stored one is older than a day.
func (d *Domains) refreshBootstrap(ctx context.Context) error {
	at, err := d.loadBootstrap(ctx)
	if err != nil || db.Now().Sub(at) < 24*time.Hour {
		return err
	}
	fetch, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(fetch, http.MethodGet, d.c.BootstrapURL, nil)
	if err != nil {
		return fmt.Errorf("fetch rdap bootstrap: %w", err)
	}
	res, err := d.rdap.client.Do(req)
	if err != nil {
		return fmt.Errorf("fetch rdap bootstrap: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch rdap bootstrap: %s", res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, bootstrapMax+1))
	if err != nil {
		return fmt.Errorf("fetch rdap bootstrap: %w", err)
	}
	if len(body) > bootstrapMax {
		return errors.New("fetch rdap bootstrap: it is too large")
	}
	b, err := parseBootstrap(body)
	if err != nil {
		return err
	}
	if b["com"] == nil {
		return errors.New("fetch rdap bootstrap: it does not even name com")
	}
	d.rdap.learn(b)
	return d.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO rdap_bootstrap (id, body, fetched_at) VALUES (1, $1, $2)
			ON CONFLICT (id) DO UPDATE SET body = excluded.body, fetched_at = excluded.fetched_at`, string(body), db.Now())
		return err
	})
}
