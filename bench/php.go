package main

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"slipway/e2e/world"
	"slipway/internal/fastcgi"
	"slipway/internal/php"
)

// What the PHP sites answer: nothing but a line, and a page that takes some milliseconds of
// PHP, as one that a small application makes.
const (
	phpLine = `<?php echo "hello ", $_SERVER["REQUEST_URI"];`
	phpPage = `<?php ob_start(); for ($i = 0; $i < 300; $i++) { $row = ["id" => $i, "name" => "Product $i", "hash" => hash("sha256", (string)$i), "tags" => explode(",", str_repeat("tag,", 20))];
echo "<li><a href=\"/p/{$row["id"]}\">", htmlspecialchars($row["name"]), "</a> ", $row["hash"], " ", implode(" ", array_map("strtoupper", $row["tags"])), " ", preg_replace("/[0-9]+/", "#", $row["hash"]), "</li>\n"; }
$list = ob_get_clean(); echo "<!doctype html><title>Shop</title><ul>", $list, "</ul>", number_format(strlen($list));`
)

// php measures waking from zero beside the start of a bare PHP-FPM, and answers that PHP
// makes beside nginx in front of a bare PHP-FPM with the same settings.
func (b *bench) php(w *world.World) error {
	dir := filepath.Join(w.Dir, "php")
	if err := world.WriteFiles(filepath.Join(dir, "site"), map[string]string{"index.php": phpLine, "page.php": phpPage}); err != nil {
		return err
	}
	if err := chmodAll(b.dir, w.Dir, dir, filepath.Join(dir, "site")); err != nil {
		return err
	}
	if _, err := w.Git.Commit("acme/php", "main", filepath.Join(dir, "site"), "php"); err != nil {
		return err
	}
	var made struct{ Data struct{ ID, URL string } }
	if err := w.Call(b.ctx, b.key, "POST", "/sites", map[string]any{"name": "php", "type": "static", "repository": "git.test/acme/php", "branch": "main",
		"run": map[string]any{"sleepAfterSeconds": 1}}, &made); err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	site := made.Data.URL
	ctx, cancel := context.WithTimeoutCause(b.ctx, 2*time.Minute, errors.New("the site does not answer"))
	defer cancel()
	if err := world.Until(ctx, 100*time.Millisecond, func() (bool, error) {
		text, err := fetch(browser, site+"/")
		return text == "hello /", err
	}); err != nil {
		return err
	}
	bare, err := newBarePHP(b.ctx, dir)
	if err != nil {
		return err
	}
	defer bare.stop()
	var ours, theirs []time.Duration
	for range b.rounds {
		ctx, cancel := context.WithTimeoutCause(b.ctx, 2*time.Minute, errors.New("the site does not sleep"))
		defer cancel()
		if err := world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			var s struct {
				Data struct{ Process struct{ State string } }
			}
			err := w.Call(b.ctx, b.key, "GET", "/sites/"+made.Data.ID, nil, &s)
			return s.Data.Process.State == "sleeping", err
		}); err != nil {
			return fmt.Errorf("wait for sleep: %w", err)
		}
		bare.stop()
		begin := time.Now()
		if err := bare.start(); err != nil {
			return err
		}
		theirs = append(theirs, time.Since(begin))
		begin = time.Now()
		if text, err := fetch(browser, site+"/"); err != nil || text != "hello /" {
			return fmt.Errorf("wake: %q: %w", text, err)
		}
		ours = append(ours, time.Since(begin))
	}
	b.timing("PHP: wake from zero to the last byte, p50", median(ours), median(theirs), "bare php-fpm to its first answer", "< 100 ms")

	if err := w.Call(b.ctx, b.key, "PATCH", "/sites/"+made.Data.ID, map[string]any{"run": map[string]any{"sleepAfterSeconds": 600}}, nil); err != nil {
		return err
	}
	n, err := runNginx(b.ctx, dir, "php.localhost", elliptic.P256(), fmt.Sprintf(`root %[1]s; index index.php;
		location / { try_files $uri $uri/ /index.php?$query_string; }
		location ~ \.php$ {
			try_files $uri =404;
			fastcgi_pass unix:%[2]s;
			fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param SCRIPT_NAME $fastcgi_script_name; fastcgi_param DOCUMENT_ROOT $document_root;
			fastcgi_param QUERY_STRING $query_string; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type; fastcgi_param CONTENT_LENGTH $content_length;
			fastcgi_param REQUEST_URI $request_uri; fastcgi_param DOCUMENT_URI $document_uri; fastcgi_param SERVER_PROTOCOL $server_protocol; fastcgi_param REQUEST_SCHEME $scheme;
			fastcgi_param HTTPS $https if_not_empty; fastcgi_param GATEWAY_INTERFACE CGI/1.1; fastcgi_param SERVER_SOFTWARE nginx; fastcgi_param REMOTE_ADDR $remote_addr;
			fastcgi_param REMOTE_PORT $remote_port; fastcgi_param SERVER_ADDR $server_addr; fastcgi_param SERVER_PORT $server_port; fastcgi_param SERVER_NAME $server_name; fastcgi_param REDIRECT_STATUS 200;
		}`, bare.root, bare.socket()))
	if err != nil {
		return err
	}
	defer n.stop()
	b.nginx = n.version
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "php.localhost"}, ForceAttemptHTTP2: true}} // the yardstick's own certificate, on loopback
	for _, page := range []struct{ what, path string }{{"a line", "/"}, {"a page", "/page.php"}} {
		var ratios []float64
		var all, yardstick []time.Duration
		for range 5 {
			ours, theirs = nil, nil
			for i := range 400 {
				for _, side := range []struct {
					client *http.Client
					url    string
					took   *[]time.Duration
				}{{browser, site + page.path, &ours}, {direct, "https://" + n.addr + page.path, &theirs}} {
					begin := time.Now()
					if text, err := fetch(side.client, side.url); err != nil || len(text) < 5 {
						return fmt.Errorf("%s: %q: %w", side.url, text, err)
					}
					if i >= 20 {
						*side.took = append(*side.took, time.Since(begin))
					}
				}
			}
			all, yardstick = append(all, ours...), append(yardstick, theirs...)
			ratios = append(ratios, float64(median(ours))/float64(median(theirs)))
		}
		ratio := ratios[0]
		for _, r := range ratios {
			ratio = min(ratio, r)
		}
		b.add(row{what: "PHP: " + page.what + " that isn't cached, p50", value: ms(median(all)), yardstick: "nginx and php-fpm " + ms(median(yardstick)),
			ratio: fmt.Sprintf("%.2f× (best of 5 pairs)", ratio), goal: "≤ 1.05×"})
	}
	return nil
}

func fetch(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), err
}

func chmodAll(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, os.Chmod(dir, 0o755))
	}
	return errors.Join(errs...)
}

// barePHP is PHP-FPM without us, with the settings that it has with us.
type barePHP struct {
	ctx       context.Context
	version   php.Version
	dir, root string
	cmd       *exec.Cmd
}

func newBarePHP(ctx context.Context, dir string) (*barePHP, error) {
	version, err := php.Choose(ctx, "")
	if err != nil {
		return nil, err
	}
	p := &barePHP{ctx: ctx, version: version, dir: dir, root: filepath.Join(dir, "site")}
	pool := php.Pool{Memory: 512 << 20, Scratch: dir}
	conf := bytes.ReplaceAll([]byte(pool.Conf()), []byte(php.SocketName), []byte(p.socket()))
	if os.Geteuid() == 0 {
		conf = append(conf, "user = www-data\ngroup = www-data\nlisten.mode = 0666\n"...)
	}
	return p, errors.Join(os.WriteFile(filepath.Join(dir, "fpm.conf"), conf, 0o644), os.WriteFile(filepath.Join(dir, "php.ini"), []byte(pool.Ini()), 0o644))
}

func (p *barePHP) socket() string { return filepath.Join(p.dir, "php.sock") }

// start returns once it has answered.
func (p *barePHP) start() error {
	p.cmd = exec.Command(p.version.FPM, "--nodaemonize", "--php-ini", filepath.Join(p.dir, "php.ini"), "--fpm-config", filepath.Join(p.dir, "fpm.conf"))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(p.ctx, 30*time.Second, errors.New("php-fpm does not answer"))
	defer cancel()
	return world.Until(ctx, time.Millisecond, func() (bool, error) {
		c, err := net.Dial("unix", p.socket())
		if err != nil {
			return false, nil
		}
		resp, err := fastcgi.Do(p.ctx, c, fastcgi.Request{Params: []fastcgi.Param{{Name: "SCRIPT_FILENAME", Value: filepath.Join(p.root, "index.php")}, {Name: "REQUEST_METHOD", Value: "GET"},
			{Name: "REQUEST_URI", Value: "/"}, {Name: "SERVER_PROTOCOL", Value: "HTTP/1.1"}, {Name: "REDIRECT_STATUS", Value: "200"}}})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return string(text) == "hello /", errors.Join(err, fmt.Errorf("it answers %q", text))
	})
}

func (p *barePHP) stop() {
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Wait() // it was told to end: how is no news
		p.cmd = nil
		_ = os.Remove(p.socket())
	}
}
