package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/sandbox"
)

// errMissing says that the registry answered and does not have it.
var errMissing = errors.New("not in the registry")

const caInside = "/run/slipway/ca.pem"

// workDir makes an empty directory for the uid. The caller holds the lock of key, so
// what a crash left there is nobody's; it removes the parent in the end.
func (t *Toolchain) workDir(key string) (string, error) {
	outer := filepath.Join(t.c.Dir, "work", key)
	if err := os.RemoveAll(outer); err != nil {
		return "", fmt.Errorf("clean work directory: %w", err)
	}
	// The inner one is the uid's, the outer one is ours: nothing beside it can be made.
	dir := filepath.Join(outer, "root")
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("make work directory: %w", err)
	}
	if err := sandbox.Own(dir, t.c.UID); err != nil {
		return "", err
	}
	return dir, nil
}

// npm runs the host's npm in the sandbox, in a clean package. With take, what it left in
// the package is handed over before it is removed. The caller holds the lock of key.
func (t *Toolchain) npm(ctx context.Context, key string, args []string, take func(dir string) error) ([]byte, error) {
	program := t.lookPath("npm")
	if program == "" {
		return nil, errNoNPM()
	}
	work, err := t.workDir(key)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(work))
	dir := filepath.Join(work, "package")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make package: %w", err)
	}
	// unsynced: scratch
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o644); err != nil {
		return nil, fmt.Errorf("make package: %w", err)
	}
	if err := sandbox.Own(work, t.c.UID); err != nil {
		return nil, err
	}
	c := sandbox.Command{
		Argv: append([]string{program}, args...), Dir: sandbox.Root + "/package", Work: work, UID: t.c.UID,
		// The registry's address may hold a password, hence not in argv.
		Env: []string{
			"npm_config_cache=" + sandbox.Root + "/cache",
			"npm_config_userconfig=" + sandbox.Root + "/npmrc",
			"npm_config_update_notifier=false", "npm_config_fetch_retries=2", "npm_config_fetch_retry_factor=3",
			"npm_config_fetch_retry_mintimeout=500", "npm_config_fetch_retry_maxtimeout=5000",
			"npm_config_fetch_timeout=60000", "npm_config_audit=false", "npm_config_fund=false",
		},
		Limits: sandbox.Limits{Wall: 10 * time.Minute, Disk: 2 << 30, Files: 60_000, Output: maxCatalogue},
	}
	if t.c.Registry != "" {
		c.Env = append(c.Env, "npm_config_registry="+t.c.Registry)
	}
	binds, env := t.trust()
	c.Binds, c.Env = append(c.Binds, binds...), append(c.Env, env...)
	if t.c.Network != nil {
		network, closeNetwork, err := t.c.Network(ctx)
		if err != nil {
			return nil, fmt.Errorf("open egress socket: %w", err)
		}
		defer closeNetwork()
		c.Network = network
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	res, err := t.c.Sandbox.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !res.OK() {
		t.c.Log.WarnContext(ctx, "npm failed", "args", strings.Join(args, " "), "result", res.String(), "stderr", tail(errs.Bytes()))
		return nil, explain(res, out.Bytes(), errs.Bytes())
	}
	if take != nil {
		if err := take(dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// trust shows the operator's own roots to whatever runs on Node: what goes through the
// operator's mirror or proxy is signed by them.
func (t *Toolchain) trust() ([]sandbox.Bind, []string) {
	switch {
	case t.c.CAFile == "":
		return nil, nil
	case t.plain():
		return nil, []string{"NODE_EXTRA_CA_CERTS=" + t.c.CAFile}
	}
	return []sandbox.Bind{{Source: t.c.CAFile, Target: caInside}}, []string{"NODE_EXTRA_CA_CERTS=" + caInside}
}

// plain reports whether commands see this machine's files where they are, and binds not at all.
func (t *Toolchain) plain() bool {
	p, ok := t.c.Sandbox.(interface{ ShowsBinds() bool })
	return ok && !p.ShowsBinds()
}

var (
	npmCode = lazyregexp.New(`(?m)^npm (?:ERR!|error) code (\S+)`)
	// What npm, Node and OpenSSL call the many ways of not reaching a server.
	netCode = lazyregexp.New(
		`^(E[45]\d\d|ENOTFOUND|EAI_\w+|ECONN\w+|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EPIPE|EPROTO|ENEEDAUTH|EINTEGRITY|` +
			`ERR_SOCKET_TIMEOUT|ERR_SSL_\w+|ERR_TLS_\w+|ERR_STREAM_\w+|ERR_INVALID_ARG_TYPE|CERT_\w+|UNABLE_TO_\w+|SELF_SIGNED_\w+|` +
			`DEPTH_ZERO_\w+|FETCH_ERROR)$`,
	)
)

// explain turns npm's failure into an error.
func explain(res sandbox.Result, out, errs []byte) error {
	code := ""
	if m := npmCode.FindSubmatch(errs); m != nil {
		code = string(m[1])
	} else {
		var said struct{ Error struct{ Code string } }
		if json.Unmarshal(out, &said) == nil {
			code = said.Error.Code
		}
	}
	switch {
	case code == "E404" || code == "ETARGET" || code == "ENOVERSIONS":
		return errMissing
	case res.Killed == sandbox.Timeout || netCode.MatchString(code) || bytes.Contains(errs, []byte("network request to")):
		return &fault.Error{
			Kind: fault.Unavailable, Code: "npm_registry_unavailable", RetryAfter: time.Minute,
			Message: "The npm registry can't be reached from this server at the moment",
			Details: "The build may be retried; npm's output is in the server's log",
		}
	}
	return fmt.Errorf("run npm: %s: %s", res, tail(errs))
}
