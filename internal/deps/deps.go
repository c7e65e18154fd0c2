//go:build deps

// Package deps pins what helpers are about to import; it goes away with the last of them.
package deps

import (
	_ "github.com/BurntSushi/toml"
	_ "github.com/alecthomas/kong"
	_ "github.com/andybalholm/brotli"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/klauspost/compress/gzip"
	_ "github.com/miekg/dns"
	_ "github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/manager"
	_ "github.com/openrdap/rdap"
	_ "github.com/pressly/goose/v3"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "golang.org/x/crypto/argon2"
	_ "golang.org/x/net/bpf"
	_ "golang.org/x/net/idna"
	_ "golang.org/x/net/publicsuffix"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sync/singleflight"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/unicode/norm"
	_ "modernc.org/sqlite"
)
