package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
	"slipway/internal/build/phpversion"
	"slipway/internal/program/php"
)

// bareWordPress is the baseline: the host's nginx with FastCGI cache and PHP-FPM, with the same core, database and
// php.ini.
type bareWordPress struct {
	*nginx
	fpm *exec.Cmd
}

// environmentOf reads the environment of a site's WordPress.
func environmentOf(ctx context.Context, w *world.World, client *http.Client, id, url string) ([]string, error) {
	plugins := filepath.Join(w.Data, "storage", id, "wp-content", "mu-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		return nil, err
	}
	at := filepath.Join(plugins, "bench.php")
	if err := os.WriteFile(at,
		[]byte(`<?php if (isset($_GET['bench-env'])) { header('Content-Type: application/json'); echo json_encode(array_filter(getenv(), fn($k) => strpos($k, 'SLIPWAY_WP_') === 0, ARRAY_FILTER_USE_KEY)); exit; }`),
		0o644); err != nil {
		return nil, err
	}
	defer os.Remove(at)
	a, err := w.Site(ctx, client, world.Request{Method: "GET", URL: url + "/?bench-env=1"})
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return nil, err
	}
	vars := map[string]string{}
	if err := a.JSON(&vars); err != nil {
		return nil, err
	}
	// not a preview's
	vars["SLIPWAY_WP_DATABASE_SOCKET"] = filepath.Join(w.Data, "mariadb", "sockets", id+"."+filepath.Base(""), "mysqld.sock")
	var env []string
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	return env, nil
}

func startBareWordPress(ctx context.Context, w *world.World, dir, name, host string, env []string) (*bareWordPress, error) {
	found, _ := filepath.Glob(filepath.Join(w.Data, "bundles/trees/*/*/public/wp-config.php"))
	if len(found) == 0 {
		return nil, errors.New("there is no core on disk")
	}
	root := filepath.Dir(found[0])
	versions := phpversion.Installed(ctx)
	if len(versions) == 0 {
		return nil, errors.New("PHP-FPM is needed (apt-get install php-fpm)")
	}
	pool := php.Pool{Memory: 512 << 20, Scratch: dir}
	socket := filepath.Join(dir, "php.sock")
	conf := fmt.Sprintf(
		"[global]\nerror_log = %s/fpm.log\ndaemonize = no\n[www]\nlisten = %s\nuser = root\ngroup = root\npm = ondemand\npm.max_children = 10\npm.process_idle_timeout = 30s\nclear_env = no\n",
		dir,
		socket,
	)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "fpm.conf"), []byte(conf), 0o600),
		os.WriteFile(filepath.Join(dir, "php.ini"), []byte(pool.Ini()), 0o600),
	); err != nil {
		return nil, err
	}
	b := &bareWordPress{
		fpm: exec.Command(versions[0].FPM, "--allow-to-run-as-root", "--nodaemonize", "--php-ini",
			filepath.Join(dir, "php.ini"), "--fpm-config", filepath.Join(dir, "fpm.conf")),
	}
	b.fpm.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	b.fpm.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := b.fpm.Start(); err != nil {
		return nil, err
	}
	if err := world.Until(ctx, 10*time.Millisecond, func() (bool, error) { _, err := os.Stat(socket); return err == nil, err }); err != nil {
		b.stop()
		return nil, err
	}
	var err error
	b.nginx, err = runNginx(ctx, dir, name, fmt.Sprintf(`root %s; index index.php; gzip on; keepalive_requests 1000000000;
		location / { try_files $uri $uri/ /index.php?$args; }
		location ~ \.php$ {
			fastcgi_pass unix:%s; fastcgi_cache wp; fastcgi_cache_valid 200 10m; fastcgi_cache_key "$scheme$request_method$host$request_uri";
			fastcgi_ignore_headers Cache-Control Expires Set-Cookie; fastcgi_cache_bypass $http_cookie; fastcgi_no_cache $http_cookie; fastcgi_cache_use_stale updating; fastcgi_cache_background_update on;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;
			fastcgi_param QUERY_STRING $query_string; fastcgi_param HTTPS on; fastcgi_param HTTP_HOST %s; fastcgi_param SERVER_NAME %s; fastcgi_param SERVER_PROTOCOL HTTP/1.1; fastcgi_param REDIRECT_STATUS 200; fastcgi_param REMOTE_ADDR 127.0.0.1; fastcgi_param DOCUMENT_ROOT $document_root;
		}
	}
	fastcgi_cache_path %s keys_zone=wp:16m inactive=60m;
	server { listen unix:%s;`, root, socket, host, name, filepath.Join(dir, "cache"), filepath.Join(dir, "unused.sock")))
	if err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bareWordPress) stop() {
	if b.nginx != nil {
		b.nginx.stop()
	}
	_ = b.fpm.Process.Signal(syscall.SIGTERM)
	_ = b.fpm.Wait()
}

// besideNginx measures cached and uncached pages against the baseline.
func (b *bench) besideNginx(w *world.World, client *http.Client, id, url string) error {
	dir := filepath.Join(w.Dir, "nginx-wordpress")
	if err := os.MkdirAll(filepath.Join(dir, "cache"), 0o755); err != nil {
		return err
	}
	env, err := environmentOf(b.ctx, w, client, id, url)
	if err != nil {
		return err
	}
	host := strings.TrimPrefix(url, "https://")
	name, _, _ := strings.Cut(host, ":")
	bare, err := startBareWordPress(b.ctx, w, dir, name, host, env)
	if err != nil {
		return err
	}
	defer bare.stop()
	// the baseline has a self-signed certificate
	plain := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: name}}
	defer plain.CloseIdleConnections()
	page := func(addr, cookie string) (time.Duration, error) {
		r, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "https://"+addr+"/", nil)
		if err != nil {
			return 0, err
		}
		r.Host = host
		if cookie != "" {
			r.Header.Set("Cookie", cookie)
		}
		begun := time.Now()
		a, err := world.Read((&http.Client{Transport: plain}).Do(r))
		if err == nil {
			err = a.Err()
		}
		return time.Since(begun), err
	}
	for _, addr := range []string{w.HTTPS, bare.addr} { // both have cached the page
		if _, err := page(addr, ""); err != nil {
			return err
		}
	}
	peers := []*peer{{"slipway", w.HTTPS, w.PID()}, {"nginx with fastcgi_cache", bare.addr, bare.cmd.Process.Pid}}
	if err := b.compare("a cached page, HTTP/2", name, "", []string{"-c16", "-m16"}, peers, []string{"≥ 1×"}); err != nil {
		return err
	}
	if err := b.compare("a cached page as browsers ask for it", name, "", []string{
		"-c16",
		"-m16",
		"-H",
		"accept-encoding: gzip, br",
	}, peers, []string{"≥ 1×"}); err != nil {
		return err
	}
	var ours, theirs []time.Duration
	for range 60 {
		for addr, to := range map[string]*[]time.Duration{w.HTTPS: &ours, bare.addr: &theirs} {
			took, err := page(addr, "PHPSESSID=none")
			if err != nil {
				return err
			}
			*to = append(*to, took)
		}
	}
	b.timing("a page past the cache, p50, beside nginx and PHP-FPM", median(ours), median(theirs), "nginx", "≤ 1.05×")
	return nil
}
